// Makes operators visible to TAO's templates for operation arguments. The templates insert values into an any
// by operators that are declared later in the global namespace. At instantiation C++ does not look in the
// global namespace, but in the namespace of CORBA::Any.
namespace CORBA {
template <class T>
void operator<<=(Any& any, const T& value) {
  ::operator<<=(any, value);
}
}  // namespace CORBA
