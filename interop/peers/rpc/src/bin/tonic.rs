//! tonic, which is gRPC, over TCP.

use corelane_rpc_peers::{Calls, Failure, MAX_OCTETS, checked, measure_as_told, reference, serve_until_end};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Server};
use tonic::{Request, Response, Status};

mod generated {
    include!(concat!(env!("OUT_DIR"), "/cubit.Target.rs"));
}

use generated::target_client::TargetClient;
use generated::target_server::{Target, TargetServer};

#[derive(Clone, PartialEq, prost::Message)]
pub struct Octet {
    #[prost(uint32, tag = "1")]
    v: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Octets {
    #[prost(bytes = "vec", tag = "1")]
    v: Vec<u8>,
}

struct Echo;

#[tonic::async_trait]
impl Target for Echo {
    async fn echo_octet(&self, request: Request<Octet>) -> Result<Response<Octet>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn echo_octets(&self, request: Request<Octets>) -> Result<Response<Octets>, Status> {
        Ok(Response::new(request.into_inner()))
    }
}

struct Client(TargetClient<Channel>);

impl Calls for Client {
    async fn octet(&mut self, value: u8) -> Result<u8, Failure> {
        Ok(self.0.echo_octet(Octet { v: value.into() }).await?.into_inner().v.try_into()?)
    }

    async fn octets(&mut self, sent: &[u8], whole: bool) -> Result<(usize, Option<u8>), Failure> {
        let reply = self.0.echo_octets(Octets { v: sent.to_vec() }).await?;
        checked(sent, &reply.get_ref().v, whole)
    }
}

/// Size in octets of the message around an argument.
const FRAME: usize = 1 << 10;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    if let Some(url) = reference()? {
        let client = TargetClient::connect(url).await?.max_decoding_message_size(MAX_OCTETS + FRAME);
        return measure_as_told(&mut Client(client)).await;
    }
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?.with_nodelay(Some(true));
    let url = format!("http://{}", incoming.local_addr()?);
    let service = TargetServer::new(Echo).max_decoding_message_size(MAX_OCTETS + FRAME);
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(incoming));
    tokio::task::spawn_blocking(move || serve_until_end(&url)).await?
}
