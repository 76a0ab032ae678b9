// The code that is specific to omniORB.
#ifndef CORELANE_INTEROP_PRODUCT_H
#define CORELANE_INTEROP_PRODUCT_H

#include <string>

#include "interop.hh"

namespace product {

using StringMember = CORBA::String_member;
using AnyOut = CORBA::Any_OUT_arg;

/// The stream into which values are written.
using Stream = cdrStream;

inline void put_octets(Stream& s, const CORBA::Octet* octets, int count) { s.put_octet_array(octets, count); }
template <class T>
void put_value(Stream& s, const T& v) { v >>= s; }

/// Returns the octets that `write` writes.
template <class Write>
std::string written(Write write) {
  cdrMemoryStream stream(512, true);
  write(stream);
  return std::string(static_cast<const char*>(stream.bufPtr()), stream.bufSize());
}

inline CORBA::ORB_ptr orb(int& argc, char** argv) {
  // The defaults of 2 MiB and 5 connections are too small for large messages and for nested calls
  // of many threads.
  const char* settings[][2] = {
      {"giopMaxMsgSize", "67108864"}, {"maxGIOPConnectionPerServer", "64"}, {nullptr, nullptr}};
  return CORBA::ORB_init(argc, argv, "omniORB4", settings);
}

inline std::string minor_of(const CORBA::SystemException& raised) {
  const char* name = const_cast<CORBA::SystemException&>(raised).NP_minorString();
  return name ? std::string(name) : std::to_string(raised.minor());
}

/// Activates an object under the plain key.
inline CORBA::Object_ptr publish(CORBA::ORB_ptr orb, PortableServer::POA_ptr, PortableServer::Servant servant, const char* key) {
  CORBA::Object_var found = orb->resolve_initial_references("omniINSPOA");
  PortableServer::POA_var named = PortableServer::POA::_narrow(found);
  PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId(key);
  named->activate_object_with_id(id, servant);
  PortableServer::POAManager_var manager = named->the_POAManager();
  manager->activate();
  return named->id_to_reference(id);
}

/// Starts serving requests, if the ORB needs a thread for that.
inline void serve(CORBA::ORB_ptr) {}

}  // namespace product

#endif
