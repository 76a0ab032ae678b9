// The code that is specific to TAO.
#ifndef CORELANE_INTEROP_PRODUCT_H
#define CORELANE_INTEROP_PRODUCT_H

#include <thread>

#include <tao/IORTable/IORTable.h>

#include "interop.hh"

// tao_idl does not support context clauses.
#define WITHOUT_CONTEXTS

// tao_idl generates invalid C++ for wide constants.
namespace Interop {
constexpr CORBA::WChar A_WCHAR = L'\u20ac';
constexpr const CORBA::WChar* A_WSTRING = L"wide \u65e5\u672c";
}  // namespace Interop

namespace product {

using AnyOut = CORBA::Any_out;

inline CORBA::ORB_ptr orb(int& argc, char** argv) { return CORBA::ORB_init(argc, argv); }

/// Activates an object and makes it reachable by the plain key.
inline CORBA::Object_ptr publish(CORBA::ORB_ptr orb, PortableServer::POA_ptr root, PortableServer::Servant servant, const char* key) {
  PortableServer::ObjectId_var id = root->activate_object(servant);
  CORBA::Object_var object = root->id_to_reference(id.in());
  CORBA::String_var ior = orb->object_to_string(object.in());
  CORBA::Object_var found = orb->resolve_initial_references("IORTable");
  IORTable::Table_var table = IORTable::Table::_narrow(found.in());
  table->bind(key, ior.in());
  return object._retn();
}

/// Starts threads that serve requests. Each level of a nested call takes a thread, for each calling thread.
inline void serve(CORBA::ORB_ptr orb) {
  for (int i = 0; i < 32; ++i) {
    std::thread([orb] {
      try {
        orb->run();
      } catch (const CORBA::Exception&) {
        // The exception means that the ORB was shut down.
      }
    }).detach();
  }
}

}  // namespace product

#endif
