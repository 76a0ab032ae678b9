// guide REFERENCE WORDS [-ORB...]
//
// Calls the object of the guides (examples/guides/echo.idl) and prints the result.

#include <iostream>

#include "echo.hh"

int main(int argc, char** argv) {
  try {
    CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
    if (argc != 3) {
      std::cerr << "usage: guide REFERENCE WORDS" << std::endl;
      return 2;
    }
    CORBA::Object_var object = orb->string_to_object(argv[1]);
    Guide::Echo_var echo = Guide::Echo::_narrow(object);
    CORBA::String_var said = echo->say(argv[2]);
    std::cout << said.in() << std::endl;
    orb->destroy();
    return 0;
  } catch (const CORBA::Exception& exception) {
    std::cerr << exception._name() << std::endl;
    return 1;
  }
}
