// ground_link COMPUTER RECORDER SECONDS
//
// A client of another ORB, omniORB, built from the same IDL. It calls the mission computer ten times a
// second and, like the other clients, reports to the demo once a second.

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>

#include "avionics.hh"

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

static Avionics::Report fresh() {
  Avionics::Report report;
  report.client = "omniorb";
  report.scheduling = "OTHER";
  report.period = 0;
  report.misses = 0;
  report.failures = 0;
  report.trouble = "";
  return report;
}

static void assess(Avionics::MissionComputer_ptr computer, int count, Avionics::Report& report, Clock::time_point due) {
  try {
    Avionics::Contacts contacts;
    contacts.length(8);
    for (CORBA::ULong i = 0; i < contacts.length(); ++i)
      contacts[i] = {double((i * 45 + count) % 360), 5000.0 + 900 * i, i % 2 ? 120.0 : -120.0};
    Avionics::Contacts_var threats = computer->assess(contacts);
    if (threats->length() != 4) throw CORBA::UNKNOWN();
    auto latency = std::chrono::nanoseconds(Clock::now() - due).count();
    CORBA::ULong calls = report.latencies.length();
    report.latencies.length(calls + 1);
    report.latencies[calls] = latency < 0xffffffff ? CORBA::ULong(latency) : 0xffffffff;
  } catch (const CORBA::Exception& failure) {
    ++report.failures;
    report.trouble = failure._name();
  }
}

int main(int argc, char** argv) try {
  CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
  if (argc != 4) return 2;
  CORBA::Object_var object = orb->string_to_object(argv[1]);
  auto computer = Avionics::MissionComputer::_narrow(object);
  object = orb->string_to_object(argv[2]);
  auto recorder = Avionics::Recorder::_narrow(object);
  auto due = Clock::now(), reported = due;
  auto end = due + std::chrono::seconds(std::atoi(argv[3]));
  Avionics::Report report = fresh();
  for (int count = 0; (due += milliseconds(100)) <= end; ++count) {
    std::this_thread::sleep_until(due);
    assess(computer, count, report, due);
    auto period = std::chrono::duration<double>(Clock::now() - reported).count();
    if (period < 1 && due + milliseconds(100) <= end) continue;
    report.period = period;
    recorder->take(report);
    report = fresh();
    reported = Clock::now();
  }
  orb->destroy();
  return 0;
} catch (const CORBA::Exception& failure) {
  std::cerr << "ground_link: " << failure._name() << std::endl;
  return 1;
}
