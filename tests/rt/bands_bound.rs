//! Binding of a connection to a priority band by the client. The test acts as the server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;

use corelane::rt::RtClientPolicies;
use corelane::{ObjectRef, Orb, SystemExceptionKind as Kind};
use corelane_tests::real_time::{call_who, fair_orb};
use corelane_wire::exception::minor::OMG;
use corelane_wire::exception::{Completion, SystemExceptionBody};
use corelane_wire::giop::{self, Header, ReplyStatus, Request, context_id};
use corelane_wire::ior::{Ior, ProfileAddress, TaggedComponent, TaggedProfile};
use corelane_wire::rt::{self, PriorityModelValue, policy_type};
use corelane_wire::{Encoder, Limits, Version};

type Seen = (String, Option<i16>, Option<(i16, i16)>);

fn read_request(stream: &mut TcpStream) -> Option<(u32, Seen)> {
    let mut message = vec![0; 12];
    stream.read_exact(&mut message).ok()?;
    let header = Header::parse(message.first_chunk().unwrap()).unwrap();
    message.resize(header.total_len(), 0);
    stream.read_exact(&mut message[12..]).unwrap();
    let limits = Limits::DEFAULT;
    let request = Request::parse(&message, &header, &limits).unwrap();
    let priority = request.contexts.find(context_id::RT_CORBA_PRIORITY);
    let range = request.contexts.find(context_id::RT_CORBA_PRIORITY_RANGE);
    let operation = String::from_utf8(request.operation.to_vec()).unwrap();
    let priority = priority.map(|data| rt::parse_priority_context(data).unwrap());
    Some((request.request_id, (operation, priority, range.map(|data| rt::parse_priority_range_context(data).unwrap()))))
}

fn raise(stream: &mut TcpStream, id: u32, kind: Kind, minor: u32) {
    let mut message = Encoder::new();
    giop::begin_reply(&mut message, Version::GIOP_1_2, id, ReplyStatus::SystemException, &[]).unwrap();
    SystemExceptionBody { kind, minor, completed: Completion::No }.write(&mut message);
    giop::finish_message(&mut message).unwrap();
    stream.write_all(&message.to_vec()).unwrap();
}

/// Serves one connection. Raises `first` for the first request, and NO_IMPLEMENT with minor code 7
/// for later requests. Returns the port, and the thread, which returns the requests.
fn serve_one(first: (Kind, u32)) -> (u16, JoinHandle<Vec<Seen>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut seen = Vec::new();
        while let Some((id, request)) = read_request(&mut stream) {
            let (kind, minor) = if seen.is_empty() { first } else { (Kind::NoImplement, 7) };
            seen.push(request);
            raise(&mut stream, id, kind, minor);
        }
        seen
    };
    (port, std::thread::spawn(serve))
}

fn reference(client: &Orb, port: u16, bands: &[(i16, i16)]) -> ObjectRef {
    let model = PriorityModelValue { model: 0, server_priority: 0 }.encode().unwrap();
    let policies = [(policy_type::PRIORITY_MODEL, model)];
    let components = [TaggedComponent::policies(&policies).unwrap()];
    let address = ProfileAddress::Inet { host: "127.0.0.1", port };
    let profile = TaggedProfile::encode(Version::GIOP_1_2, address, b"key", &components).unwrap();
    let ior = Ior { type_id: String::new(), profiles: vec![profile] };
    let object = client.string_to_object(&ior.to_text().unwrap()).unwrap().unwrap();
    let policies = RtClientPolicies { priority_bands: Some(bands.to_vec()), ..RtClientPolicies::default() };
    object.with_rt_policies(&policies).unwrap()
}

fn at(client: &Orb, priority: i16) {
    client.real_time().current().unwrap().set_priority(priority).unwrap();
}

fn raised(object: &ObjectRef) -> (Kind, u32) {
    let exception = call_who(object).unwrap_err();
    (exception.kind(), exception.minor())
}

#[test]
fn client_asks_a_server_without_bands_once_and_then_calls_it() {
    for (kind, minor) in [(Kind::BadOperation, OMG | 2), (Kind::NoImplement, 0), (Kind::ObjectNotExist, OMG | 2)] {
        let (port, server) = serve_one((kind, minor));
        let client = fair_orb();
        let object = reference(&client, port, &[(5, 15), (16, 30)]);
        at(&client, 10);
        assert_eq!(raised(&object), (Kind::NoImplement, 7));
        at(&client, 15);
        assert_eq!(raised(&object), (Kind::NoImplement, 7));
        drop((object, client));
        let who = |priority| ("who".to_owned(), Some(priority), None);
        let bound = ("_bind_priority_band".to_owned(), None, Some((5, 15)));
        assert_eq!(server.join().unwrap(), [bound, who(10), who(15)]);
    }
}

#[test]
fn refused_band_fails_the_call_and_closes_the_connection() {
    let (port, server) = serve_one((Kind::InvPolicy, OMG | 1));
    let client = fair_orb();
    let object = reference(&client, port, &[(5, 15)]);
    at(&client, 10);
    assert_eq!(raised(&object), (Kind::InvPolicy, OMG | 1));
    // The server's thread has ended because the client has closed the connection.
    assert_eq!(server.join().unwrap().len(), 1);
    drop((object, client));
}

#[test]
fn shared_connection_of_deferred_calls_is_bound_to_its_band() {
    let (port, server) = serve_one((Kind::BadOperation, OMG | 2));
    let client = fair_orb();
    let object = reference(&client, port, &[(0, 32767)]);
    at(&client, 7);
    for _ in 0..2 {
        let mut deferred = object.send_deferred("shared", |_| Ok(())).unwrap();
        assert_eq!(deferred.reply().map(drop).unwrap_err().kind(), Kind::NoImplement);
    }
    drop((object, client));
    let shared = || ("shared".to_owned(), Some(7), None);
    let bound = ("_bind_priority_band".to_owned(), None, Some((0, 32767)));
    assert_eq!(server.join().unwrap(), [bound, shared(), shared()]);
}
