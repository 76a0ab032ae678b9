// peer --serve PRIORITY... --ior FILE --until-eof [-ORB...]: an object whose lanes have these priorities, the first one the default.
// peer --call PRIORITY... REFERENCE [-ORB...]: calls at each of them and prints what the server says its thread's priority is, one a line.
//
// TAO's side of interop/tests/tao.rs, with interop/idl/lanes.idl: CLIENT_PROPAGATED, a lane of one thread for each priority. Priorities are native ones
// (RTORB's direct mapping): start both sides with -ORBPriorityMapping through the service configurator below.

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

RTCORBA::Current_ptr current(CORBA::ORB_ptr orb) {
  CORBA::Object_var object = orb->resolve_initial_references("RTCurrent");
  return RTCORBA::Current::_narrow(object.in());
}

class Asked : public virtual POA_Lanes::Asked {
 public:
  explicit Asked(CORBA::ORB_ptr orb) : orb_(CORBA::ORB::_duplicate(orb)), current_(current(orb)) {}
  CORBA::Short priority() override { return current_->the_priority(); }
  void shutdown() override { orb_->shutdown(false); }

 private:
  CORBA::ORB_var orb_;
  RTCORBA::Current_var current_;
};

int serve(CORBA::ORB_ptr orb, const std::vector<CORBA::Short>& priorities, const std::string& file) {
  CORBA::Object_var object = orb->resolve_initial_references("RTORB");
  RTCORBA::RTORB_var rt = RTCORBA::RTORB::_narrow(object.in());
  RTCORBA::ThreadpoolLanes lanes;
  lanes.length(priorities.size());
  for (CORBA::ULong i = 0; i < lanes.length(); ++i) {
    lanes[i].lane_priority = priorities[i];
    lanes[i].static_threads = 1;
    lanes[i].dynamic_threads = 0;
  }
  RTCORBA::ThreadpoolId pool = rt->create_threadpool_with_lanes(0, lanes, false, false, 0, 0);
  CORBA::PolicyList policies(2);
  policies.length(2);
  policies[0] = rt->create_priority_model_policy(RTCORBA::CLIENT_PROPAGATED, priorities[0]);
  policies[1] = rt->create_threadpool_policy(pool);
  object = orb->resolve_initial_references("RootPOA");
  PortableServer::POA_var root = PortableServer::POA::_narrow(object.in());
  PortableServer::POAManager_var manager = root->the_POAManager();
  PortableServer::POA_var poa = root->create_POA("lanes", manager.in(), policies);
  PortableServer::ServantBase_var servant = new Asked(orb);
  PortableServer::ObjectId_var id = poa->activate_object(servant.in());
  manager->activate();
  CORBA::Object_var reference = poa->id_to_reference(id.in());
  CORBA::String_var text = orb->object_to_string(reference.in());
  // Whole at once: whoever waits for the file reads it as soon as it is there.
  std::ofstream(file + ".new") << text.in() << std::endl;
  if (std::rename((file + ".new").c_str(), file.c_str()) != 0) return 1;
  std::thread([orb] {
    std::string line;
    while (std::getline(std::cin, line)) {}
    std::_Exit(0);
  }).detach();
  orb->run();
  orb->destroy();
  return 0;
}

int call(CORBA::ORB_ptr orb, const std::vector<CORBA::Short>& priorities, const char* text) {
  CORBA::Object_var object = orb->string_to_object(text);
  Lanes::Asked_var asked = Lanes::Asked::_narrow(object.in());
  RTCORBA::Current_var here = current(orb);
  for (CORBA::Short priority : priorities) {
    here->the_priority(priority);
    std::cout << asked->priority() << std::endl;
  }
  orb->destroy();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    std::vector<CORBA::Short> priorities;
    std::string mode, file, reference;
    for (int i = 1; i < argc; ++i) {
      char* end = nullptr;
      long number = std::strtol(argv[i], &end, 10);
      if (end != argv[i] && *end == 0) priorities.push_back(number);
      else if (!std::strcmp(argv[i], "--serve") || !std::strcmp(argv[i], "--call")) mode = argv[i];
      else if (!std::strcmp(argv[i], "--ior") && i + 1 < argc) file = argv[++i];
      else if (std::strcmp(argv[i], "--until-eof")) reference = argv[i];
    }
    if (priorities.empty() || (mode != "--serve" && mode != "--call")) {
      std::cerr << "usage: peer --serve PRIORITY... --ior FILE --until-eof | --call PRIORITY... REFERENCE\n";
      return 2;
    }
    return mode == "--serve" ? serve(orb.in(), priorities, file) : call(orb.in(), priorities, reference.c_str());
  } catch (const CORBA::Exception& exception) {
    exception._tao_print_exception("peer");
    return 1;
  }
}
