//! Compiles the IDL of the fuzz targets `generated` and `valuetypes`.
fn main() {
    corelane_idl::Builder::new().compile("idl/values.idl").compile("idl/valuetypes.idl");
}
