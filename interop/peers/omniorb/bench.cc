// bench REFERENCE [--op NAME]... [--warm-up N] [--count N] [--core C] [-ORB...]
//
// Times calls of one client thread on the Bench object of the Suite that REFERENCE (IOR:, corbaloc:, or a file with one of them) names:
// nothing, octet, long, struct, longs4, longs1024, oneway (all of them if none is named). Prints one line of JSON for each, times in
// microseconds. A oneway's times are those of the sending; its per_s counts until a call after the last one has returned.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "core.h"
#include "interop.hh"

namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

struct Run {
  std::vector<double> times;
  double whole;
};

/// Template, so that the call stands in the loop itself.
template <class Call, class Settle>
Run measure(unsigned warm_up, unsigned count, Call call, Settle settle) {
  for (unsigned i = 0; i < warm_up; ++i) call();
  settle();
  Run run;
  run.times.reserve(count);
  auto began = Clock::now();
  auto last = began;
  for (unsigned i = 0; i < count; ++i) {
    call();
    auto now = Clock::now();
    run.times.push_back(microseconds(now - last));
    last = now;
  }
  settle();
  run.whole = microseconds(Clock::now() - began);
  return run;
}

void print(const std::string& op, int core, Run run) {
  auto& times = run.times;
  double sum = 0, squares = 0;
  for (double time : times) {
    sum += time;
    squares += time * time;
  }
  double n = static_cast<double>(times.size());
  double mean = sum / n;
  double deviation = std::sqrt(std::max(0.0, squares / n - mean * mean));
  std::sort(times.begin(), times.end());
  auto at = [&](double part) { return times[std::min(times.size() - 1, static_cast<size_t>(part * n))]; };
  std::printf(
      "{\"peer\":\"omniORB\",\"op\":\"%s\",\"core\":%d,\"n\":%zu,\"min_us\":%.3f,\"p50_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f,"
      "\"max_us\":%.3f,\"mean_us\":%.3f,\"sd_us\":%.3f,\"per_s\":%.0f}\n",
      op.c_str(), core, times.size(), times.front(), at(0.5), at(0.99), at(0.999), times.back(), mean, deviation,
      n / run.whole * 1e6);
  std::fflush(stdout);
}

Interop::LongSeq longs(CORBA::ULong count) {
  Interop::LongSeq all;
  all.length(count);
  for (CORBA::ULong i = 0; i < count; ++i) all[i] = i;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    std::string reference;
    std::vector<std::string> wanted;
    unsigned warm_up = 2000, count = 20000;
    int core = -1;
    for (int i = 1; i < argc; ++i) {
      std::string word = argv[i];
      auto value = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
      if (word == "--op") wanted.push_back(value());
      else if (word == "--warm-up") warm_up = std::atoi(value().c_str());
      else if (word == "--count") count = std::max(1, std::atoi(value().c_str()));
      else if (word == "--core") core = std::atoi(value().c_str());
      else if (reference.empty() && word[0] != '-') reference = word;
      else { std::cerr << "unknown argument " << word << "\n"; return 2; }
    }
    if (core >= 0 && !pin_to(core)) { std::perror("pinning"); return 1; }
    if (reference.rfind("IOR:", 0) != 0 && reference.rfind("corbaloc:", 0) != 0) {
      std::ifstream file(reference);
      reference.clear();
      file >> reference;
    }
    CORBA::Object_var object = orb->string_to_object(reference.c_str());
    Interop::Suite_var suite = Interop::Suite::_narrow(object);
    if (CORBA::is_nil(suite)) { std::cerr << "the reference is not a Suite\n"; return 1; }
    Interop::Bench_var bench = suite->server_bench();
    Interop::Bench_ptr b = bench;

    auto nothing = [] {};
    Interop::LongSeq longs4 = longs(4), longs1024 = longs(1024);
    auto echo_longs = [&](const Interop::LongSeq& sent) {
      return measure(warm_up, count, [&] { Interop::LongSeq_var got = b->bench_longs(sent); }, nothing);
    };
    std::vector<std::pair<std::string, std::function<Run()>>> operations = {
        {"nothing", [&] { return measure(warm_up, count, [&] { b->nothing(); }, nothing); }},
        {"octet", [&] { return measure(warm_up, count, [&] { b->bench_octet(7); }, nothing); }},
        {"long", [&] { return measure(warm_up, count, [&] { b->bench_long(7); }, nothing); }},
        {"struct", [&] { return measure(warm_up, count, [&] { b->bench_point(Interop::Point{1, 2}); }, nothing); }},
        {"longs4", [&] { return echo_longs(longs4); }},
        {"longs1024", [&] { return echo_longs(longs1024); }},
        {"oneway", [&] { return measure(warm_up, count, [&] { b->bench_oneway(7); }, [&] { b->nothing(); }); }},
    };
    if (wanted.empty())
      for (auto& operation : operations) wanted.push_back(operation.first);
    for (auto& name : wanted) {
      auto found = std::find_if(operations.begin(), operations.end(), [&](auto& o) { return o.first == name; });
      if (found == operations.end()) { std::cerr << "unknown operation " << name << "\n"; return 2; }
      print(name, core, found->second());
    }
    orb->destroy();
    return 0;
  } catch (const CORBA::Exception& exception) {
    std::cerr << "bench: " << exception._name() << "\n";
    return 1;
  }
}
