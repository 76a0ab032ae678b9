//! Callbacks nested in both directions work with few threads.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use corelane::{Dispatch, NestedWait, Orb, PoolConfig};
use corelane_tests::{ProbeRef, Server, serve, serve_with};
use corelane_wire::giop::{self, Header, Reply, ReplyStatus, Request, RequestHeader, ResponseExpected, TargetAddress};
use corelane_wire::ior::{Ior, ProfileAddress, TaggedProfile};
use corelane_wire::{Cdr, Encoder, Limits, Version};

fn served_by(dispatch: Dispatch, nested_wait: Option<NestedWait>) -> Server {
    serve_with(
        Orb::builder()
            .pool(PoolConfig::default().dispatch(dispatch).nested_wait(nested_wait))
            .listen("tcp:127.0.0.1:0"),
    )
}

fn chains(server: &Server, callers: usize) {
    let caller = serve(Dispatch::LeaderFollowers { threads: 32 });
    let object = caller.orb.string_to_object(&server.ior).unwrap().unwrap();
    let probe = ProbeRef::from_object(object).with_timeout(Duration::from_secs(10));
    thread::scope(|scope| {
        for _ in 0..callers {
            scope.spawn(|| {
                for _ in 0..20 {
                    assert_eq!(probe.call_back(Some(&caller.probe), 6).unwrap(), 6);
                }
            });
        }
    });
}

#[test]
fn only_worker_of_a_half_sync_pool_serves_requests_while_it_waits() {
    let dispatch = Dispatch::HalfSyncHalfAsync { threads: 1, max_queued: 64 };
    chains(&served_by(dispatch, Some(NestedWait::Serve { max_depth: 31 })), 6);
}

#[test]
fn two_workers_of_a_half_sync_pool_serve_their_queue_while_they_wait() {
    let dispatch = Dispatch::HalfSyncHalfAsync { threads: 2, max_queued: 64 };
    chains(&served_by(dispatch, Some(NestedWait::Serve { max_depth: 31 })), 8);
}

#[test]
fn shared_threads_of_a_thread_per_connection_pool_serve_requests_while_they_wait() {
    // With `max_threads: 0`, the pool's shared threads serve all connections.
    chains(&served_by(Dispatch::ThreadPerConnection { max_threads: 0 }, None), 8);
}

#[test]
fn reactive_server_runs_eight_chains_of_nested_calls() {
    chains(&served_by(Dispatch::Reactive, None), 8);
}

fn receive(socket: &mut TcpStream) -> (Header, Vec<u8>) {
    let mut message = vec![0; Header::LEN];
    socket.read_exact(&mut message).unwrap();
    let header = Header::parse(message[..].try_into().unwrap()).unwrap();
    message.resize(header.total_len(), 0);
    socket.read_exact(&mut message[Header::LEN..]).unwrap();
    (header, message)
}

fn send(socket: &mut TcpStream, mut message: Encoder<'_>) {
    giop::finish_message(&mut message).unwrap();
    socket.write_all(&message.to_vec()).unwrap();
}

fn request(key: &[u8], request_id: u32, operation: &str) -> Encoder<'static> {
    let mut e = Encoder::new();
    let head = RequestHeader {
        version: Version::GIOP_1_2,
        request_id,
        response_expected: ResponseExpected::Target,
        target: TargetAddress::Key(key),
        operation: operation.as_bytes(),
        contexts: &[],
    };
    giop::write_request_header(&mut e, &head).unwrap();
    e
}

/// The client sends further requests on the connection on which its first request waits for a
/// callback, as JacORB does. It replies to the callback after the server has answered these
/// requests.
#[test]
fn thread_of_a_connection_serves_the_connection_while_it_waits() {
    let server = served_by(Dispatch::ThreadPerConnection { max_threads: 16 }, None);
    let key = server.probe.as_object().ior().profiles[0].parse().unwrap().object_key.to_vec();
    let corelane::Endpoint::Tcp { host, port } = &server.orb.endpoints()[0] else { panic!("no TCP endpoint") };
    let mut connection = TcpStream::connect((host.as_str(), *port)).unwrap();
    connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = ProfileAddress::Inet { host: "127.0.0.1", port: listener.local_addr().unwrap().port() };
    let profile = TaggedProfile::encode(Version::GIOP_1_2, address, b"callback", &[]).unwrap();
    let callback = Ior { type_id: ProbeRef::REPOSITORY_ID.into(), profiles: vec![profile] };

    let mut outer = request(&key, 1, "call_back");
    callback.encode(&mut outer).unwrap();
    outer.write_i32(1);
    send(&mut connection, outer);
    let (mut back, _) = listener.accept().unwrap();
    let (header, message) = receive(&mut back);
    let nested = Request::parse(&message, &header, &Limits::DEFAULT).unwrap();
    assert_eq!(nested.operation, b"call_back");

    for value in [2u8, 3] {
        let mut inner = request(&key, 10 + u32::from(value), "cube_octet");
        inner.write_u8(value);
        send(&mut connection, inner);
        let (header, message) = receive(&mut connection);
        let reply = Reply::parse(&message, &header, &Limits::DEFAULT).unwrap();
        assert_eq!((reply.request_id, reply.status), (10 + u32::from(value), ReplyStatus::NoException));
        assert_eq!(reply.body().read_u8().unwrap(), value * value * value);
    }

    let mut answer = Encoder::new();
    giop::begin_reply(&mut answer, Version::GIOP_1_2, nested.request_id, ReplyStatus::NoException, &[]).unwrap();
    answer.write_i32(0);
    send(&mut back, answer);
    let (header, message) = receive(&mut connection);
    let reply = Reply::parse(&message, &header, &Limits::DEFAULT).unwrap();
    assert_eq!((reply.request_id, reply.status), (1, ReplyStatus::NoException));
    assert_eq!(reply.body().read_i32().unwrap(), 1);
}
