//! The conformance suite over the transports of this crate, which [`each`] lists.

use corelane_net::mock::MockTransport;
use corelane_net::{Endpoint, SharedMemoryTransport, TcpTransport, Transport, UnixTransport};

#[path = "conformance/checks.rs"]
mod checks;

#[path = "../../../tests/src/pipe.rs"]
pub mod pipe;

fn each(name: &str, check: impl Fn(&dyn Transport, &Endpoint)) {
    check(&TcpTransport::new(), &Endpoint::tcp("127.0.0.1", 0));
    check(&TcpTransport::new(), &Endpoint::tcp("::1", 0));
    let path = std::env::temp_dir().join(format!("corelane-net-{}-{name}", std::process::id()));
    check(&UnixTransport, &Endpoint::unix(&path));
    check(&SharedMemoryTransport::default(), &Endpoint::shared_memory(&path));
    check(&MockTransport::default(), &Endpoint::unix(format!("/mock/{name}")));
    let pipe = pipe::PipeTransport::new(&std::env::temp_dir());
    check(&pipe, &Endpoint::other("pipe", &format!("corelane-net-{}-{name}-pipe", std::process::id())).unwrap());
    assert!(pipe.connect_attempts() > 0);
}
