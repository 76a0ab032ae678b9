// server --ior FILE [--life SECONDS] [--until-eof] [--core C] [-ORB...]
//
// Serves an object of Interop::Suite under the plain key "Interop" and writes its reference to FILE. The
// server ends at the shutdown operation, after SECONDS (300), or, with --until-eof, at the end of standard
// input. --core pins the server to a core.

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include <unistd.h>

#include "core.h"
#include "product.h"
#include "servants.h"

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = product::orb(argc, argv);
    std::string ior_file;
    int life = 300;
    int core = -1;
    bool until_eof = false;
    for (int i = 1; i < argc; ++i) {
      std::string word = argv[i];
      if (word == "--ior" && i + 1 < argc) ior_file = argv[++i];
      else if (word == "--life" && i + 1 < argc) life = std::atoi(argv[++i]);
      else if (word == "--until-eof") until_eof = true;
      else if (word == "--core" && i + 1 < argc) core = std::atoi(argv[++i]);
      else { std::cerr << "unknown argument " << word << "\n"; return 2; }
    }
    if (core >= 0 && !pin_to(core)) { std::perror("pinning"); return 1; }
    if (ior_file.empty()) { std::cerr << "--ior FILE is missing\n"; return 2; }

    static std::mutex lock;
    static std::condition_variable changed;
    static bool stopping = false;
    auto stop = [] {
      std::lock_guard<std::mutex> guard(lock);
      stopping = true;
      changed.notify_all();
    };

    CORBA::Object_var found = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var root = PortableServer::POA::_narrow(found.in());
    PortableServer::POAManager_var manager = root->the_POAManager();
    manager->activate();
    auto* suite = new Suite_i(root.in(), stop);
    CORBA::Object_var object = product::publish(orb.in(), root.in(), suite, "Interop");
    CORBA::String_var ior = orb->object_to_string(object.in());
    product::serve(orb.in());
    { std::ofstream(ior_file + ".part") << ior.in() << "\n"; }
    if (std::rename((ior_file + ".part").c_str(), ior_file.c_str()) != 0) { std::perror(ior_file.c_str()); return 1; }
    std::cout << "ready" << std::endl;

    if (until_eof) {
      std::thread([stop] {
        char octet;
        while (::read(0, &octet, 1) > 0) {}
        stop();
      }).detach();
    }
    {
      std::unique_lock<std::mutex> guard(lock);
      changed.wait_for(guard, std::chrono::seconds(life), [] { return stopping; });
    }
    orb->destroy();
    return 0;
  } catch (const CORBA::Exception& exception) {
    std::cerr << "server: " << exception._name() << "\n";
    return 1;
  }
}
