//! Compiles the IDL of the services.

fn main() {
    corelane_idl::Builder::new().compile("idl/naming.idl");
    corelane_idl::Builder::new().compile("idl/cores.idl");
    corelane_idl::Builder::new().compile("idl/rtec.idl");
    corelane_idl::Builder::new().compile("idl/cos_events.idl");
    corelane_idl::Builder::new().compile("idl/cos_lifecycle.idl");
    corelane_idl::Builder::new()
        .external("rtec.idl", "crate::events::idl")
        .external("cos_events.idl", "crate::events::idl")
        .compile("idl/corelane_events.idl");
}
