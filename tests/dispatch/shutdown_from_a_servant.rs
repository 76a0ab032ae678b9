//! A servant shuts its ORB down. `run` then returns in `main`, which drops the ORB during the
//! shutdown.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use corelane::dynamic::{DynamicServant, ServerRequest};
use corelane::poa::{
    IdAssignment, ObjectId, Poa, PoaPolicies, RequestProcessing, ServantActivator, ServantManager, ServantResult,
};
use corelane::{Endpoint, Orb, Servant, ShutdownHandle, SystemException};
use corelane_wire::giop::{self, Header, MessageKind, RequestHeader, ResponseExpected, TargetAddress};
use corelane_wire::{Encoder, Version};

struct Ender(ShutdownHandle);

impl DynamicServant for Ender {
    fn repository_ids(&self) -> &'static [&'static str] {
        &["IDL:corelane.test/Ender:1.0"]
    }

    fn invoke(&self, _: &mut ServerRequest<'_, '_>) -> Result<(), SystemException> {
        self.0.shutdown();
        Ok(())
    }
}

struct Reluctant;

impl ServantActivator for Reluctant {
    fn incarnate(&self, _: &ObjectId, _: &Poa) -> ServantResult<Option<Servant>> {
        Ok(None)
    }

    fn etherealize(&self, _: &ObjectId, _: &Poa, _: &Servant, _: bool, _: bool) {
        std::thread::sleep(Duration::from_millis(150));
    }
}

#[test]
fn clients_get_close_connection_although_main_drops_the_orb() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    let root = orb.root_poa();
    let ender = || Servant::dynamic(Ender(orb.shutdown_handle()));
    let policies = PoaPolicies {
        id_assignment: IdAssignment::User,
        request_processing: RequestProcessing::ServantManager,
        ..PoaPolicies::default()
    };
    let slow = root.create_poa("slow", None, policies).unwrap();
    slow.set_servant_manager(ServantManager::Activator(Arc::new(Reluctant))).unwrap();
    slow.activate_object_with_id(&"it".into(), &ender()).unwrap();
    orb.bind_corbaloc_key("Ender", &root.activate(&ender()).unwrap()).unwrap();
    root.manager().activate().unwrap();
    let Endpoint::Tcp { port, .. } = orb.endpoints()[0].clone() else { panic!("no TCP") };
    let mut idle = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut caller = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let mut request = Encoder::new();
    let head = RequestHeader {
        version: Version::GIOP_1_2,
        request_id: 1,
        response_expected: ResponseExpected::Target,
        target: TargetAddress::Key(b"Ender"),
        operation: b"end",
        contexts: &[],
    };
    giop::write_request_header(&mut request, &head).unwrap();
    giop::finish_message(&mut request).unwrap();
    let clients = std::thread::spawn(move || {
        caller.write_all(&request.to_vec()).unwrap();
        let kinds = [kinds(&mut caller), kinds(&mut idle)];
        assert_eq!(kinds, [vec![MessageKind::Reply, MessageKind::CloseConnection], vec![MessageKind::CloseConnection]]);
    });
    orb.run();
    drop(orb);
    clients.join().unwrap();
}

fn kinds(stream: &mut TcpStream) -> Vec<MessageKind> {
    let mut octets = Vec::new();
    stream.read_to_end(&mut octets).unwrap();
    let mut kinds = Vec::new();
    let mut rest = octets.as_slice();
    while let Some(header) = rest.first_chunk() {
        let header = Header::parse(header).unwrap();
        kinds.push(header.kind);
        rest = &rest[header.total_len()..];
    }
    kinds
}
