// bench --serve
// bench PROXY
//
// Ice's side of `corelane bench`, with Cubit.ice. The program uses the line protocol of
// interop/peers/omniorb/bench.cc, but prints a proxy instead of a reference.

#include <Ice/Ice.h>

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "Cubit.h"

namespace {

using Clock = std::chrono::steady_clock;

long long nanoseconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
}

class Target : public Cubit::Target {
 public:
  void echoNothing(const Ice::Current&) override {}
  Ice::Byte echoOctet(Ice::Byte v, const Ice::Current&) override { return v; }
  short echoShort(short v, const Ice::Current&) override { return v; }
  int echoLong(int v, const Ice::Current&) override { return v; }
  Cubit::Mixed echoStruct(Cubit::Mixed v, const Ice::Current&) override { return v; }
  Cubit::Longs echoLongs(Cubit::Longs v, const Ice::Current&) override { return v; }
  Cubit::Mixeds echoStructs(Cubit::Mixeds v, const Ice::Current&) override { return v; }
  Cubit::Octets echoOctets(Cubit::Octets v, const Ice::Current&) override { return v; }
  std::string echoString(std::string v, const Ice::Current&) override { return v; }
  void takeOctet(Ice::Byte, const Ice::Current&) override {}
  int takeLongs(Cubit::Longs v, const Ice::Current&) override { return static_cast<int>(v.size()); }
  int takeOctets(Cubit::Octets v, const Ice::Current&) override { return static_cast<int>(v.size()); }
};

int serve(const Ice::CommunicatorPtr& communicator) {
  auto adapter = communicator->createObjectAdapterWithEndpoints("bench", "tcp -h 127.0.0.1");
  auto proxy = adapter->add(std::make_shared<Target>(), Ice::stringToIdentity("target"));
  adapter->activate();
  std::cout << "ready " << proxy->ice_toString() << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {}
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
template <class Sequence, class Echo>
Run sequences(const Sequence& sent, unsigned warm_up, unsigned count, Echo echo) {
  Sequence first = echo();
  expect(first.size() == sent.size());
  for (size_t i = 0; i < sent.size(); ++i) expect(same(first[i], sent[i]));
  auto call = [&] {
    Sequence got = echo();
    expect(got.size() == sent.size() && (sent.empty() || same(got.back(), sent.back())));
  };
  return measure(warm_up, count, call, [] {});
}

Run run(const std::shared_ptr<Cubit::TargetPrx>& t, const std::string& op, unsigned warm_up, unsigned count) {
  auto timed = [&](auto call) { return measure(warm_up, count, call, [] {}); };
  if (op == "nothing") return timed([&] { t->echoNothing(); });
  if (op == "octet") return timed([&] { expect(t->echoOctet(7) == 7); });
  if (op == "short") return timed([&] { expect(t->echoShort(-7) == -7); });
  if (op == "long") return timed([&] { expect(t->echoLong(70000) == 70000); });
  if (op == "struct") {
    Cubit::Mixed sent{1, 2, 3};
    return timed([&] { expect(same(t->echoStruct(sent), sent)); });
  }
  if (op == "oneway") {
    auto oneway = t->ice_oneway();
    return measure(warm_up, count, [&] { oneway->takeOctet(7); }, [&] { t->echoNothing(); });
  }
  if (long n = length(op, "longs"); n >= 0) {
    Cubit::Longs sent(n);
    for (long i = 0; i < n; ++i) sent[i] = i;
    return sequences(sent, warm_up, count, [&] { return t->echoLongs(sent); });
  }
  if (long n = length(op, "structs"); n >= 0) {
    Cubit::Mixeds sent(n);
    for (long i = 0; i < n; ++i) sent[i] = Cubit::Mixed{1, static_cast<int>(i), 3};
    return sequences(sent, warm_up, count, [&] { return t->echoStructs(sent); });
  }
  if (long n = length(op, "octets"); n >= 0) {
    Cubit::Octets sent(n);
    for (long i = 0; i < n; ++i) sent[i] = static_cast<Ice::Byte>(i & 0xff);
    return sequences(sent, warm_up, count, [&] { return t->echoOctets(sent); });
  }
  if (long n = length(op, "string"); n >= 0) {
    std::string sent(n, 'x');
    return sequences(sent, warm_up, count, [&] { return t->echoString(sent); });
  }
  if (long n = length(op, "take_longs"); n >= 0) {
    Cubit::Longs sent(n);
    for (long i = 0; i < n; ++i) sent[i] = i;
    return timed([&] { expect(t->takeLongs(sent) == n); });
  }
  if (long n = length(op, "take_octets"); n >= 0) {
    Cubit::Octets sent(n);
    for (long i = 0; i < n; ++i) sent[i] = static_cast<Ice::Byte>(i & 0xff);
    return timed([&] { expect(t->takeOctets(sent) == n); });
  }
  throw std::runtime_error("there is no operation " + op);
}

int call(const Ice::CommunicatorPtr& communicator, const char* proxy) {
  auto target = Ice::checkedCast<Cubit::TargetPrx>(communicator->stringToProxy(proxy));
  if (!target) {
    std::cerr << "the proxy is not of a Cubit::Target\n";
    return 1;
  }
  std::cout << "ready" << std::endl;
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string word, op;
    unsigned warm_up = 0, count = 0;
    if (!(words >> word >> op >> warm_up >> count) || word != "run") {
      std::cout << "error not understood: " << line << std::endl;
      continue;
    }
    try {
      Run done = run(target, op, warm_up, count);
      std::cout << "times " << done.whole;
      for (long long time : done.times) std::cout << ' ' << time;
      std::cout << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error " << error.what() << std::endl;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Ice::InitializationData settings;
    settings.properties = Ice::createProperties();
    // The size of messages is unlimited, because the benchmark uses large sequences.
    settings.properties->setProperty("Ice.MessageSizeMax", "0");
    settings.properties->setProperty("Ice.ACM.Close", "0");
    Ice::CommunicatorHolder communicator(settings);
    if (argc != 2) {
      std::cerr << "usage: bench --serve | PROXY\n";
      return 2;
    }
    std::ios::sync_with_stdio(false);
    return std::string(argv[1]) == "--serve" ? serve(communicator.communicator()) : call(communicator.communicator(), argv[1]);
  } catch (const std::exception& error) {
    std::cerr << "bench: " << error.what() << "\n";
    return 1;
  }
}
