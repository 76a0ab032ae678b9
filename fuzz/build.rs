//! Compiles the types of the target `generated`.
fn main() {
    corelane_idl::Builder::new().compile("idl/values.idl");
}
