// Makes operators visible to TAO's templates for operation arguments. These insert values into an
// any by operators declared after them in the global namespace, where C++ does not look at
// instantiation. C++ does look in the namespace of CORBA::Any.
namespace CORBA {
template <class T>
void operator<<=(Any& any, const T& value) {
  ::operator<<=(any, value);
}
}  // namespace CORBA
