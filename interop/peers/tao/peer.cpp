// peer --serve [--model client|server] [--pool lanes|plain] [--bands LOW-HIGH,...] PRIORITY...
// --ior FILE --until-eof [-ORB...]
//   serves objects and writes their references to FILE, one a line. --model client: one object, with the first
//   priority as default. --model server: one object for each priority. --pool lanes (the default): a lane of
//   one thread for each priority. --pool plain: a pool without lanes, with threads at the first priority.
// peer --call PRIORITY... REFERENCE [--relay] [-ORB...]
//   calls at each priority and prints the server's answer, or the name of the exception, one a line.
//   --relay: the server calls back an object of this program, which has lanes of these priorities.
//
// TAO's side of interop/tests/tao.rs, with interop/idl/lanes.idl. Priorities are native priorities, by the
// direct mapping of svc.conf.

#include <pthread.h>
#include <sched.h>

#include <tao/PortableServer/PortableServer.h>
#include <tao/RTCORBA/RTCORBA.h>
#include <tao/RTPortableServer/RTPortableServer.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "lanesC.h"
#include "lanesS.h"

namespace {

using Priorities = std::vector<CORBA::Short>;

struct Options {
  std::string mode, file, reference, model = "client", pool = "lanes", bands;
  bool relay = false;
  Priorities priorities;
};

RTCORBA::Current_ptr current(CORBA::ORB_ptr orb) {
  CORBA::Object_var object = orb->resolve_initial_references("RTCurrent");
  return RTCORBA::Current::_narrow(object.in());
}

class Asked : public virtual POA_Lanes::Asked {
 public:
  explicit Asked(CORBA::ORB_ptr orb) : orb_(CORBA::ORB::_duplicate(orb)), current_(current(orb)) {}
  CORBA::Short priority() override { return current_->the_priority(); }
  CORBA::Short relay(Lanes::Asked_ptr other) override { return other->priority(); }
  void shutdown() override { orb_->shutdown(false); }

 private:
  CORBA::ORB_var orb_;
  RTCORBA::Current_var current_;
};

RTCORBA::ThreadpoolId pool_of(RTCORBA::RTORB_ptr rt, const Options& options) {
  if (options.pool == "plain") return rt->create_threadpool(0, 2, 0, options.priorities[0], false, 0, 0);
  RTCORBA::ThreadpoolLanes lanes;
  lanes.length(options.priorities.size());
  for (CORBA::ULong i = 0; i < lanes.length(); ++i) {
    lanes[i].lane_priority = options.priorities[i];
    lanes[i].static_threads = 1;
    lanes[i].dynamic_threads = 0;
  }
  return rt->create_threadpool_with_lanes(0, lanes, false, false, 0, 0);
}

// Parses bands such as "5-15,16-25".
RTCORBA::PriorityBands bands_of(const std::string& text) {
  RTCORBA::PriorityBands bands;
  for (size_t at = 0; at < text.size();) {
    size_t dash = text.find('-', at), end = std::min(text.find(',', at), text.size());
    bands.length(bands.length() + 1);
    bands[bands.length() - 1].low = std::stoi(text.substr(at, dash - at));
    bands[bands.length() - 1].high = std::stoi(text.substr(dash + 1, end - dash - 1));
    at = end + 1;
  }
  return bands;
}

PortableServer::POA_ptr poa_of(CORBA::ORB_ptr orb, const Options& options) {
  CORBA::Object_var object = orb->resolve_initial_references("RTORB");
  RTCORBA::RTORB_var rt = RTCORBA::RTORB::_narrow(object.in());
  bool declared = options.model == "server";
  CORBA::PolicyList policies(3);
  policies.length(options.bands.empty() ? 2 : 3);
  policies[0] = rt->create_priority_model_policy(declared ? RTCORBA::SERVER_DECLARED : RTCORBA::CLIENT_PROPAGATED, options.priorities[0]);
  policies[1] = rt->create_threadpool_policy(pool_of(rt.in(), options));
  if (!options.bands.empty()) policies[2] = rt->create_priority_banded_connection_policy(bands_of(options.bands));
  object = orb->resolve_initial_references("RootPOA");
  PortableServer::POA_var root = PortableServer::POA::_narrow(object.in());
  PortableServer::POAManager_var manager = root->the_POAManager();
  PortableServer::POA_var poa = root->create_POA("lanes", manager.in(), policies);
  manager->activate();
  return poa._retn();
}

int serve(CORBA::ORB_ptr orb, const Options& options) {
  PortableServer::POA_var poa = poa_of(orb, options);
  RTPortableServer::POA_var rt_poa = RTPortableServer::POA::_narrow(poa.in());
  bool declared = options.model == "server";
  std::string part = options.file + ".new";
  {
    std::ofstream out(part);
    for (CORBA::Short priority : declared ? options.priorities : Priorities{0}) {
      PortableServer::ServantBase_var servant = new Asked(orb);
      PortableServer::ObjectId_var id =
          declared ? rt_poa->activate_object_with_priority(servant.in(), priority) : poa->activate_object(servant.in());
      CORBA::Object_var reference = poa->id_to_reference(id.in());
      CORBA::String_var text = orb->object_to_string(reference.in());
      out << text.in() << "\n";
    }
  }
  // The file is written under another name and renamed, because the driver reads it as soon as it exists.
  if (std::rename(part.c_str(), options.file.c_str()) != 0) return 1;
  std::thread([] {
    std::string line;
    while (std::getline(std::cin, line)) {}
    std::_Exit(0);
  }).detach();
  orb->run();
  orb->destroy();
  return 0;
}

int call(CORBA::ORB_ptr orb, const Options& options) {
  Lanes::Asked_var mine;
  if (options.relay) {
    PortableServer::POA_var poa = poa_of(orb, options);
    PortableServer::ServantBase_var servant = new Asked(orb);
    PortableServer::ObjectId_var id = poa->activate_object(servant.in());
    CORBA::Object_var reference = poa->id_to_reference(id.in());
    mine = Lanes::Asked::_narrow(reference.in());
  }
  CORBA::Object_var object = orb->string_to_object(options.reference.c_str());
  Lanes::Asked_var asked = Lanes::Asked::_unchecked_narrow(object.in());
  RTCORBA::Current_var here = current(orb);
  for (CORBA::Short priority : options.priorities) {
    try {
      here->the_priority(priority);
      std::cout << (options.relay ? asked->relay(mine.in()) : asked->priority()) << std::endl;
    } catch (const CORBA::SystemException& exception) {
      std::cout << exception._name() << std::endl;
    }
  }
  orb->destroy();
  return 0;
}

// Gives the calling thread the class SCHED_FIFO. TAO sets only a thread's priority, and the class SCHED_OTHER
// has no priorities.
bool enter_fifo() {
  sched_param parameters{};
  parameters.sched_priority = sched_get_priority_min(SCHED_FIFO);
  return pthread_setschedparam(pthread_self(), SCHED_FIFO, &parameters) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (!enter_fifo()) {
      std::cerr << "SCHED_FIFO is not permitted here\n";
      return 2;
    }
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    Options options;
    for (int i = 1; i < argc; ++i) {
      std::string word = argv[i];
      auto value = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
      char* end = nullptr;
      long number = std::strtol(argv[i], &end, 10);
      if (end != argv[i] && *end == 0) options.priorities.push_back(number);
      else if (word == "--serve" || word == "--call") options.mode = word;
      else if (word == "--ior") options.file = value();
      else if (word == "--model") options.model = value();
      else if (word == "--pool") options.pool = value();
      else if (word == "--bands") options.bands = value();
      else if (word == "--relay") options.relay = true;
      else if (word != "--until-eof") options.reference = word;
    }
    if (options.priorities.empty() || options.mode.empty()) {
      std::cerr << "usage: peer --serve PRIORITY... --ior FILE --until-eof | --call PRIORITY... REFERENCE\n";
      return 2;
    }
    return options.mode == "--serve" ? serve(orb.in(), options) : call(orb.in(), options);
  } catch (const CORBA::Exception& exception) {
    exception._tao_print_exception("peer");
    return 1;
  }
}
