//! tarpc over TCP, with bincode.

use corelane_rpc_peers::{Calls, Failure, MAX_OCTETS, checked, measure_as_told, reference, serve_until_end};
use futures::StreamExt;
use serde_bytes::ByteBuf;
use tarpc::server::{BaseChannel, Channel};
use tarpc::tokio_serde::formats::Bincode;
use tarpc::{client, context, serde_transport};

#[tarpc::service]
trait Target {
    async fn echo_octet(v: u8) -> u8;
    async fn echo_octets(v: ByteBuf) -> ByteBuf;
}

#[derive(Clone)]
struct Echo;

impl Target for Echo {
    async fn echo_octet(self, _: context::Context, v: u8) -> u8 {
        v
    }

    async fn echo_octets(self, _: context::Context, v: ByteBuf) -> ByteBuf {
        v
    }
}

struct Client(TargetClient);

impl Calls for Client {
    async fn octet(&mut self, value: u8) -> Result<u8, Failure> {
        Ok(self.0.echo_octet(context::current(), value).await?)
    }

    async fn octets(&mut self, sent: &[u8], whole: bool) -> Result<(usize, Option<u8>), Failure> {
        checked(sent, &self.0.echo_octets(context::current(), ByteBuf::from(sent)).await?, whole)
    }
}

/// Size in octets of the frame around an argument.
const FRAME: usize = 1 << 10;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    if let Some(address) = reference()? {
        let mut connect = serde_transport::tcp::connect(address, Bincode::default);
        connect.config_mut().max_frame_length(MAX_OCTETS + FRAME);
        let client = TargetClient::new(client::Config::default(), connect.await?).spawn();
        return measure_as_told(&mut Client(client)).await;
    }
    let mut listener = serde_transport::tcp::listen("127.0.0.1:0", Bincode::default).await?;
    listener.config_mut().max_frame_length(MAX_OCTETS + FRAME);
    let address = listener.local_addr().to_string();
    tokio::spawn(async move {
        while let Some(Ok(transport)) = listener.next().await {
            let requests = BaseChannel::with_defaults(transport).execute(Echo.serve());
            tokio::spawn(requests.for_each(|request| async {
                tokio::spawn(request);
            }));
        }
    });
    tokio::task::spawn_blocking(move || serve_until_end(&address)).await?
}
