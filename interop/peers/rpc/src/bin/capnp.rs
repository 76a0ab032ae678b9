//! Cap'n Proto RPC over TCP.

use std::rc::Rc;

use capnp_rpc::rpc_twoparty_capnp::Side;
use capnp_rpc::{RpcSystem, twoparty};
use corelane_rpc_peers::{Calls, Failure, checked, measure_as_told, reference, serve_until_end};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};
use tokio_util::compat::{TokioAsyncReadCompatExt, TokioAsyncWriteCompatExt};

capnp::generated_code!(mod target_capnp);

use target_capnp::target;

struct Echo;

impl target::Server for Echo {
    async fn echo_octet(
        self: Rc<Self>,
        request: target::EchoOctetParams,
        mut reply: target::EchoOctetResults,
    ) -> Result<(), capnp::Error> {
        reply.get().set_v(request.get()?.get_v());
        Ok(())
    }

    async fn echo_octets(
        self: Rc<Self>,
        request: target::EchoOctetsParams,
        mut reply: target::EchoOctetsResults,
    ) -> Result<(), capnp::Error> {
        reply.get().set_v(request.get()?.get_v()?);
        Ok(())
    }
}

struct Client(target::Client);

impl Calls for Client {
    async fn octet(&mut self, value: u8) -> Result<u8, Failure> {
        let mut request = self.0.echo_octet_request();
        request.get().set_v(value);
        Ok(request.send().promise.await?.get()?.get_v())
    }

    async fn octets(&mut self, sent: &[u8], whole: bool) -> Result<(usize, Option<u8>), Failure> {
        let mut request = self.0.echo_octets_request();
        request.get().set_v(sent);
        let reply = request.send().promise.await?;
        checked(sent, reply.get()?.get_v()?, whole)
    }
}

fn network(
    stream: TcpStream,
    side: Side,
) -> Result<Box<twoparty::VatNetwork<impl futures::AsyncRead + Unpin>>, Failure> {
    stream.set_nodelay(true)?;
    let (reader, writer) = stream.into_split();
    // Arguments of 64 MiB exceed the default limit.
    let mut limits = capnp::message::ReaderOptions::new();
    limits.traversal_limit_in_words(None);
    Ok(Box::new(twoparty::VatNetwork::new(reader.compat(), writer.compat_write(), side, limits)))
}

async fn serve(listener: TcpListener) -> Result<(), Failure> {
    let target: target::Client = capnp_rpc::new_client(Echo);
    loop {
        let (stream, _) = listener.accept().await?;
        spawn_local(RpcSystem::new(network(stream, Side::Server)?, Some(target.clone().client)));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let local = LocalSet::new();
    if let Some(address) = reference()? {
        return local
            .run_until(async move {
                let stream = TcpStream::connect(address).await?;
                let mut system = RpcSystem::new(network(stream, Side::Client)?, None);
                let client = system.bootstrap(Side::Server);
                spawn_local(system);
                measure_as_told(&mut Client(client)).await
            })
            .await;
    }
    local
        .run_until(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await?;
            let address = listener.local_addr()?.to_string();
            spawn_local(serve(listener));
            tokio::task::spawn_blocking(move || serve_until_end(&address)).await?
        })
        .await
}
