//! References by name in a client: `corbaname:`, `corbaloc:rir:` and initial references.

use std::net::TcpListener;
use std::time::Duration;

use corelane::{CallPolicies, Endpoint, Orb, SystemException, SystemExceptionKind as Kind, with_call_policies};
use corelane_services::naming::cos_naming::{NamingContextExtRef, NamingContextRef};
use corelane_services::naming::{NamingConfig, name};

struct NameServer {
    orb: Orb,
    root: NamingContextExtRef,
}

impl NameServer {
    fn new(address: &str) -> Self {
        let orb = Orb::builder().listen(address).build().unwrap();
        let naming = NamingConfig::new().serve(&orb).unwrap();
        let root = naming.reference().clone();
        NameServer { orb, root }
    }

    fn port(&self) -> u16 {
        let Endpoint::Tcp { port, .. } = self.orb.endpoints()[0] else { panic!("no TCP endpoint") };
        port
    }

    fn bind(&self, text: &str, number: u16) {
        let object = self.orb.string_to_object(&target(number)).unwrap();
        self.root.rebind(&name::to_name(text).unwrap(), object.as_ref()).unwrap();
    }
}

fn target(number: u16) -> String {
    format!("corbaloc::1.2@192.0.2.1:{number}/Object")
}

fn leads_to(client: &Orb, text: &str, number: u16) -> bool {
    let found = client.string_to_object(text).unwrap().unwrap();
    found == client.string_to_object(&target(number)).unwrap().unwrap()
}

fn refused(client: &Orb, text: &str) -> SystemException {
    client.string_to_object(text).unwrap_err()
}

#[test]
fn corbaname_leads_to_the_binding_in_the_name_service() {
    let server = NameServer::new("tcp:127.0.0.1:0");
    server.root.bind_new_context(&name::to_name("shop").unwrap()).unwrap();
    server.bind("shop/orders.obj", 1);
    server.bind("ä b", 2);
    let (client, port) = (Orb::new().unwrap(), server.port());
    let at = |rest: &str| format!("corbaname::1.2@127.0.0.1:{port}{rest}");
    assert!(leads_to(&client, &at("#shop/orders.obj"), 1));
    assert!(leads_to(&client, &at("/NameService#shop/orders.obj"), 1));
    assert!(leads_to(&client, &at("#%c3%a4%20b"), 2));
    let context: NamingContextRef = client.string_to_reference(&at("")).unwrap();
    assert!(context.resolve(&name::to_name("shop").unwrap()).unwrap().is_some());

    for (rest, why) in [
        ("#shop/none", "nothing is bound to the first part of none"),
        ("#none/x", "nothing is bound to the first part of none/x"),
        ("#%c3%a4%20b/x", "no naming context is bound to the first part of"),
        ("#a//b", "the part after the scheme"),
    ] {
        let exception = refused(&client, &at(rest));
        assert_eq!(exception.kind(), Kind::BadParam, "{rest}: {exception}");
        let said = exception.to_string().split_once("\": ").map(|(_, why)| why.to_owned()).unwrap_or_default();
        let said = exception.to_string().split_once(" is not resolved: ").map_or(said, |(_, why)| why.to_owned());
        assert!(said.contains(why), "{rest}: {exception}");
    }
    assert_eq!(refused(&client, &at("/Nothing#shop")).kind(), Kind::ObjectNotExist);
}

#[test]
fn initial_reference_is_resolved_at_each_use() {
    // No other test uses this address, so the port stays free while the server restarts.
    let server = NameServer::new("tcp:127.0.21.9:0");
    let port = server.port();
    let client = Orb::builder()
        .initial_reference("NameService", format!("corbaloc::1.2@127.0.21.9:{port}/NameService"))
        .initial_reference("Clock", "corbaname:rir:#clock")
        .default_initial_reference(format!("corbaloc::1.2@127.0.21.9:{port}"));
    let client = client.build().unwrap();
    let clock = || client.resolve_initial_references("Clock");
    assert_eq!(clock().unwrap_err().kind(), Kind::BadParam);
    server.bind("clock", 3);
    assert_eq!(clock().unwrap(), client.string_to_object(&target(3)).unwrap().unwrap());
    assert!(leads_to(&client, "corbaloc:rir:/Clock", 3) && leads_to(&client, "corbaname:rir:#clock", 3));
    assert_eq!(client.initial_reference_names(), ["Clock", "NameService"]);
    assert!(client.resolve_initial_references("Other").unwrap().to_string().starts_with("IOR:"));

    drop(server);
    assert!(matches!(clock().unwrap_err().kind(), Kind::Transient | Kind::CommFailure));
    let server = NameServer::new(&format!("tcp:127.0.21.9:{port}"));
    server.bind("clock", 4);
    assert_eq!(clock().unwrap(), client.string_to_object(&target(4)).unwrap().unwrap());
}

#[test]
fn initial_references_can_be_given_as_arguments() {
    let server = NameServer::new("tcp:127.0.0.1:0");
    server.bind("clock", 5);
    let reference = format!("NameService=corbaloc::1.2@127.0.0.1:{}/NameService", server.port());
    let words = ["-v", "-ORBInitRef", &reference, "file"].map(String::from);
    let (builder, rest) = Orb::builder().parse_arguments(words).unwrap();
    assert_eq!(rest, ["-v", "file"]);
    assert!(leads_to(&builder.build().unwrap(), "corbaname:rir:#clock", 5));
}

#[test]
fn references_that_lead_to_themselves_or_nowhere_are_refused() {
    let builder = Orb::builder().initial_reference("A", "corbaloc:rir:/B").initial_reference("B", "corbaloc:rir:/A");
    let client = builder.build().unwrap();
    for text in ["corbaloc:rir:/A", "corbaname:rir:/B#x", "corbaloc:rir:/C", "corbaloc:rir:"] {
        let exception = refused(&client, text);
        assert_eq!((exception.kind(), exception.minor() & 0xfff), (Kind::BadParam, 10), "{text}: {exception}");
    }
    assert!(refused(&client, "corbaloc:rir:/A").to_string().contains("refers to itself"));
    assert!(refused(&client, "corbaloc:rir:/C").to_string().contains("-ORBInitRef"));
    for (name, text) in [("", "corbaloc::h/K"), ("N", "h/K")] {
        let error = Orb::builder().initial_reference(name, text).build().unwrap_err().to_string();
        assert!(error.contains("BAD_PARAM"), "{error}");
    }
}

#[test]
fn resolution_by_a_silent_name_server_ends_at_the_deadline() {
    // The kernel accepts connections, but no program reads their data.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = Orb::builder().call_timeout(Duration::from_secs(600)).build().unwrap();
    let text = format!("corbaname::1.2@127.0.0.1:{}#clock", silent.local_addr().unwrap().port());
    let policies = CallPolicies { timeout: Some(Duration::from_millis(50).into()), ..CallPolicies::NONE };
    let exception = with_call_policies(policies, || refused(&client, &text));
    assert_eq!(exception.kind(), Kind::Timeout);
}
