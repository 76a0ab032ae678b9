// The code that tao_idl generates from interop.idl, under the name that the programs use.
#ifndef CORELANE_INTEROP_HH
#define CORELANE_INTEROP_HH

#include <tao/AnyTypeCode/Any.h>
#include <tao/AnyTypeCode/TypeCode.h>
#include <tao/DynamicAny/DynamicAny.h>
#include <tao/DynamicAny/DynAnyFactory.h>
#include <tao/PortableServer/PortableServer.h>

#include "interopC.h"
#include "interopS.h"

#endif
