// bench --serve [-ORB...]
// bench REFERENCE [-ORB...]
//
// omniORB's side of `corelane bench`, with crates/bench/idl/cubit.idl.
//
// The server prints "ready IOR:..." and ends when its standard input ends.
// The client prints "ready", then reads commands, one a line, until its standard input ends:
//   run OPERATION WARM-UP COUNT [dynamic]
//     measures COUNT calls and prints "times WHOLE T1 T2 ... Tcount" in nanoseconds. WHOLE is the time from
//     the start of the first call to the end of the last call. Operations: nothing octet short long struct
//     longsN structsN octetsN stringN take_longsN take_octetsN oneway. The times of oneways are the times of
//     sending, and WHOLE lasts until a two-way call after the last oneway has returned.
//   call OPERATION COUNT
//     makes the calls without reading the clock between them, and prints "called".
// The client answers other commands with "error TEXT".

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "cubit.hh"

namespace {

using Clock = std::chrono::steady_clock;

long long nanoseconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

class Target : public POA_Cubit::CountedTarget {
 public:
  void echo_nothing() override {}
  CORBA::Octet echo_octet(CORBA::Octet v) override { return v; }
  CORBA::Short echo_short(CORBA::Short v) override { return v; }
  CORBA::Long echo_long(CORBA::Long v) override { return v; }
  Cubit::Mixed echo_struct(const Cubit::Mixed& v) override { return v; }
  Cubit::Longs* echo_longs(const Cubit::Longs& v) override { return new Cubit::Longs(v); }
  Cubit::Mixeds* echo_structs(const Cubit::Mixeds& v) override { return new Cubit::Mixeds(v); }
  Cubit::Octets* echo_octets(const Cubit::Octets& v) override { return new Cubit::Octets(v); }
  char* echo_string(const char* v) override { return CORBA::string_dup(v); }
  void take_octet(CORBA::Octet) override {}
  CORBA::ULong take_longs(const Cubit::Longs& v) override { return v.length(); }
  CORBA::ULong take_octets(const Cubit::Octets& v) override { return v.length(); }
  Cubit::Tally counted() override { throw CORBA::NO_IMPLEMENT(); }
  CORBA::ULong work(CORBA::ULong rounds) override {
    // Corelane's servant computes the result in the same way.
    CORBA::ULong value = 1;
    for (CORBA::ULong round = 0; round < rounds; ++round) {
      value *= 0x9e3779b1u;
      value = (value << 5 | value >> 27) ^ round;
    }
    return value;
  }
};

int serve(CORBA::ORB_ptr orb) {
  CORBA::Object_var object = orb->resolve_initial_references("RootPOA");
  PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
  PortableServer::Servant_var<Target> target = new Target;
  PortableServer::ObjectId_var id = poa->activate_object(target);
  PortableServer::POAManager_var manager = poa->the_POAManager();
  manager->activate();
  CORBA::Object_var reference = poa->id_to_reference(id);
  CORBA::String_var text = orb->object_to_string(reference);
  std::cout << "ready " << text.in() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {}
  orb->destroy();
  return 0;
}

struct Run {
  std::vector<long long> times;
  long long whole;
};

/// Measures `count` calls after a warm-up. The function is a template, so that the call is inlined in the loop.
template <class Call, class Settle>
Run measure(unsigned warm_up, unsigned count, Call call, Settle settle) {
  Run run;
  run.times.assign(count, 0);
  for (unsigned i = 0; i < warm_up; ++i) call();
  settle();
  auto began = Clock::now();
  auto last = began;
  for (unsigned i = 0; i < count; ++i) {
    call();
    auto now = Clock::now();
    run.times[i] = nanoseconds(now - last);
    last = now;
  }
  settle();
  run.whole = nanoseconds(Clock::now() - began);
  return run;
}

void expect(bool holds) {
  if (!holds) throw std::runtime_error("the reply is not what was sent");
}

/// Returns the number after `prefix` in `word`, or -1.
long length(const std::string& word, const std::string& prefix) {
  if (word.rfind(prefix, 0) != 0 || word.size() == prefix.size()) return -1;
  char* end = nullptr;
  long n = std::strtol(word.c_str() + prefix.size(), &end, 10);
  return *end == 0 && n >= 0 && n <= 64 << 20 ? n : -1;
}

template <class Number>
bool same(Number a, Number b) { return a == b; }
bool same(const Cubit::Mixed& a, const Cubit::Mixed& b) { return a.o == b.o && a.l == b.l && a.s == b.s; }

/// Measures calls with a sequence. The whole reply is compared once before the measurement. Timed replies
/// are compared only by length and last element.
template <class Var, class Sequence, class Echo>
Run sequences(const Sequence& sent, unsigned warm_up, unsigned count, Echo echo) {
  const CORBA::ULong length = sent.length();
  Var first = echo();
  expect(first->length() == length);
  for (CORBA::ULong i = 0; i < length; ++i) expect(same(first[i], sent[i]));
  auto call = [&] {
    Var got = echo();
    expect(got->length() == length && (length == 0 || same(got[length - 1], sent[length - 1])));
  };
  return measure(warm_up, count, call, [] {});
}

Run run(Cubit::Target_ptr t, const std::string& op, unsigned warm_up, unsigned count) {
  auto timed = [&](auto call) { return measure(warm_up, count, call, [] {}); };
  if (op == "nothing") return timed([&] { t->echo_nothing(); });
  if (op == "octet") return timed([&] { expect(t->echo_octet(7) == 7); });
  if (op == "short") return timed([&] { expect(t->echo_short(-7) == -7); });
  if (op == "long") return timed([&] { expect(t->echo_long(70000) == 70000); });
  if (op == "struct") {
    Cubit::Mixed sent = {1, 2, 3};
    return timed([&] { expect(same(t->echo_struct(sent), sent)); });
  }
  if (op == "oneway") return measure(warm_up, count, [&] { t->take_octet(7); }, [&] { t->echo_nothing(); });
  if (long n = length(op, "longs"); n >= 0) {
    Cubit::Longs sent;
    sent.length(n);
    for (long i = 0; i < n; ++i) sent[i] = i;
    return sequences<Cubit::Longs_var>(sent, warm_up, count, [&] { return t->echo_longs(sent); });
  }
  if (long n = length(op, "structs"); n >= 0) {
    Cubit::Mixeds sent;
    sent.length(n);
    for (long i = 0; i < n; ++i) sent[i] = Cubit::Mixed{1, static_cast<CORBA::Long>(i), 3};
    return sequences<Cubit::Mixeds_var>(sent, warm_up, count, [&] { return t->echo_structs(sent); });
  }
  if (long n = length(op, "octets"); n >= 0) {
    Cubit::Octets sent;
    sent.length(n);
    for (long i = 0; i < n; ++i) sent[i] = i & 0xff;
    return sequences<Cubit::Octets_var>(sent, warm_up, count, [&] { return t->echo_octets(sent); });
  }
  if (long n = length(op, "string"); n >= 0) {
    std::string sent(n, 'x');
    CORBA::String_var first = t->echo_string(sent.c_str());
    expect(sent == first.in());
    return timed([&] { CORBA::String_var got = t->echo_string(sent.c_str()); expect(std::strlen(got) == sent.size()); });
  }
  if (long n = length(op, "take_longs"); n >= 0) {
    Cubit::Longs sent;
    sent.length(n);
    for (long i = 0; i < n; ++i) sent[i] = i;
    return timed([&] { expect(t->take_longs(sent) == static_cast<CORBA::ULong>(n)); });
  }
  if (long n = length(op, "take_octets"); n >= 0) {
    Cubit::Octets sent;
    sent.length(n);
    for (long i = 0; i < n; ++i) sent[i] = i & 0xff;
    return timed([&] { expect(t->take_octets(sent) == static_cast<CORBA::ULong>(n)); });
  }
  throw std::runtime_error("there is no operation " + op);
}

/// Sends `argument` by dynamic invocation, and expects a reply of type `type` that `read` accepts.
template <class Read>
void invoke(Cubit::Target_ptr t, const char* name, const CORBA::Any& argument, CORBA::TypeCode_ptr type, Read read) {
  CORBA::Request_var request = t->_request(name);
  request->add_in_arg() = argument;
  request->set_return_type(type);
  request->invoke();
  if (CORBA::Exception* exception = request->env()->exception()) throw std::runtime_error(exception->_name());
  expect(read(request->return_value()));
}

/// Measures an operation as `run` does, with dynamic requests built from names, types and values.
Run run_dynamic(Cubit::Target_ptr t, const std::string& op, unsigned warm_up, unsigned count) {
  auto timed = [&](auto call) { return measure(warm_up, count, call, [] {}); };
  auto nothing = [&] {
    CORBA::Request_var request = t->_request("echo_nothing");
    request->set_return_type(CORBA::_tc_void);
    request->invoke();
    if (CORBA::Exception* exception = request->env()->exception()) throw std::runtime_error(exception->_name());
  };
  if (op == "nothing") return timed(nothing);
  if (op == "octet") return timed([&] {
    CORBA::Any argument;
    argument <<= CORBA::Any::from_octet(7);
    invoke(t, "echo_octet", argument, CORBA::_tc_octet, [](CORBA::Any& any) {
      CORBA::Octet v = 0;
      return (any >>= CORBA::Any::to_octet(v)) && v == 7;
    });
  });
  if (op == "short") return timed([&] {
    CORBA::Any argument;
    argument <<= CORBA::Short(-7);
    invoke(t, "echo_short", argument, CORBA::_tc_short, [](CORBA::Any& any) {
      CORBA::Short v = 0;
      return (any >>= v) && v == -7;
    });
  });
  if (op == "long") return timed([&] {
    CORBA::Any argument;
    argument <<= CORBA::Long(70000);
    invoke(t, "echo_long", argument, CORBA::_tc_long, [](CORBA::Any& any) {
      CORBA::Long v = 0;
      return (any >>= v) && v == 70000;
    });
  });
  if (op == "struct") return timed([&] {
    const Cubit::Mixed sent = {1, 2, 3};
    CORBA::Any argument;
    argument <<= sent;
    invoke(t, "echo_struct", argument, Cubit::_tc_Mixed, [&](CORBA::Any& any) {
      const Cubit::Mixed* got = nullptr;
      return (any >>= got) && same(*got, sent);
    });
  });
  if (op == "oneway") return measure(warm_up, count, [&] {
    CORBA::Request_var request = t->_request("take_octet");
    request->add_in_arg() <<= CORBA::Any::from_octet(7);
    request->send_oneway();
  }, nothing);
  auto echoes = [&](const auto& sent, const char* name, CORBA::TypeCode_ptr type) {
    return timed([&, name, type] {
      CORBA::Any argument;
      argument <<= sent;
      invoke(t, name, argument, type, [&](CORBA::Any& any) {
        const std::decay_t<decltype(sent)>* got = nullptr;
        if (!(any >>= got) || got->length() != sent.length()) return false;
        for (CORBA::ULong i = 0; i < sent.length(); ++i) if (!same((*got)[i], sent[i])) return false;
        return true;
      });
    });
  };
  if (long n = length(op, "longs"); n >= 0) {
    Cubit::Longs sent;
    sent.length(n);
    for (long i = 0; i < n; ++i) sent[i] = i;
    return echoes(sent, "echo_longs", Cubit::_tc_Longs);
  }
  if (long n = length(op, "structs"); n >= 0) {
    Cubit::Mixeds sent;
    sent.length(n);
    for (long i = 0; i < n; ++i) sent[i] = Cubit::Mixed{1, static_cast<CORBA::Long>(i), 3};
    return echoes(sent, "echo_structs", Cubit::_tc_Mixeds);
  }
  if (long n = length(op, "octets"); n >= 0) {
    Cubit::Octets sent;
    sent.length(n);
    for (long i = 0; i < n; ++i) sent[i] = i & 0xff;
    return echoes(sent, "echo_octets", Cubit::_tc_Octets);
  }
  auto takes = [&](const auto& sent, const char* name) {
    return timed([&, name] {
      CORBA::Any argument;
      argument <<= sent;
      invoke(t, name, argument, CORBA::_tc_ulong, [&](CORBA::Any& any) {
        CORBA::ULong v = 0;
        return (any >>= v) && v == sent.length();
      });
    });
  };
  if (long n = length(op, "take_longs"); n >= 0) {
    Cubit::Longs sent;
    sent.length(n);
    for (long i = 0; i < n; ++i) sent[i] = i;
    return takes(sent, "take_longs");
  }
  if (long n = length(op, "take_octets"); n >= 0) {
    Cubit::Octets sent;
    sent.length(n);
    for (long i = 0; i < n; ++i) sent[i] = i & 0xff;
    return takes(sent, "take_octets");
  }
  throw std::runtime_error("there is no dynamic operation " + op);
}

int call(CORBA::ORB_ptr orb, const char* reference) {
  CORBA::Object_var object = orb->string_to_object(reference);
  Cubit::Target_var target = Cubit::Target::_narrow(object);
  if (CORBA::is_nil(target)) {
    std::cerr << "the reference is not a Cubit::Target\n";
    return 1;
  }
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string word, op, how;
    unsigned warm_up = 0, count = 0;
    words >> word >> op >> warm_up;
    const bool untimed = word == "call";
    if (!words || (!untimed && (word != "run" || !(words >> count)))) {
      std::cout << "error not understood: " << line << std::endl;
      continue;
    }
    try {
      if (untimed) {
        run(target, op, warm_up, 0);
        std::cout << "called" << std::endl;
        continue;
      }
      Run done = words >> how && how == "dynamic" ? run_dynamic(target, op, warm_up, count) : run(target, op, warm_up, count);
      std::cout << "times " << done.whole;
      for (long long time : done.times) std::cout << ' ' << time;
      std::cout << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error " << error.what() << std::endl;
    } catch (const CORBA::Exception& exception) {
      std::cout << "error " << exception._name() << std::endl;
    }
  }
  orb->destroy();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    if (argc != 2) {
      std::cerr << "usage: bench --serve | REFERENCE\n";
      return 2;
    }
    std::ios::sync_with_stdio(false);
    return std::string(argv[1]) == "--serve" ? serve(orb) : call(orb, argv[1]);
  } catch (const CORBA::Exception& exception) {
    std::cerr << "bench: " << exception._name() << "\n";
    return 1;
  }
}
