// server --ior FILE [--life SECONDS] [--until-eof] [--core C] [-ORB...]
//
// Serves Interop::Suite under the plain key "Interop", writes its reference to FILE, and runs until the shutdown operation, until
// the life is over (300 s), or until the standard input ends if asked to watch it. Pinned to a core if one is named.

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>

#include <unistd.h>

#include "core.h"
#include "servants.h"

int main(int argc, char** argv) {
  try {
    // The defaults of 2 MiB and 5 connections are too small for the large messages, and for nested calls of many threads.
    const char* settings[][2] = {
        {"giopMaxMsgSize", "67108864"}, {"maxGIOPConnectionPerServer", "64"}, {nullptr, nullptr}};
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv, "omniORB4", settings);
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
    PortableServer::POA_var root = PortableServer::POA::_narrow(found);
    found = orb->resolve_initial_references("omniINSPOA");
    PortableServer::POA_var named = PortableServer::POA::_narrow(found);
    auto* suite = new Suite_i(root, stop);
    PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId("Interop");
    named->activate_object_with_id(id, suite);
    PortableServer::POAManager_var manager = root->the_POAManager();
    manager->activate();
    manager = named->the_POAManager();
    manager->activate();

    CORBA::Object_var object = named->id_to_reference(id);
    CORBA::String_var ior = orb->object_to_string(object);
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
