//! Generates the code of the schemas of tonic and Cap'n Proto.

fn main() {
    #[cfg(feature = "capnp")]
    if let Err(error) = capnpc::CompilerCommand::new().src_prefix("src").file("src/target.capnp").run() {
        panic!("the schema src/target.capnp: {error}");
    }
    #[cfg(feature = "tonic")]
    {
        use tonic_build::manual::{Builder, Method, Service};
        let method = |name: &str, route: &str, of: &str| {
            Method::builder()
                .name(name)
                .route_name(route)
                .input_type(of)
                .output_type(of)
                .codec_path("tonic_prost::ProstCodec")
                .build()
        };
        let service = Service::builder()
            .name("Target")
            .package("cubit")
            .method(method("echo_octet", "EchoOctet", "crate::Octet"))
            .method(method("echo_octets", "EchoOctets", "crate::Octets"))
            .build();
        Builder::new().compile(&[service]);
    }
}
