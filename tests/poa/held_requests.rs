//! POA managers that hold requests, and the events about them.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use corelane::poa::{PoaPolicies, Threading};
use corelane::{Event, ObjectRef, Orb};
use corelane_sys::clock;
use corelane_sys::lock::{LockScope, Mutex};
use corelane_tests::real_time::{Reporter, call_who};

type Told = Arc<Mutex<Vec<Event>>>;

fn server() -> (Orb, Told) {
    let told: Told = Arc::new(Mutex::new("events", LockScope::Orb, Vec::new()));
    let list = Arc::clone(&told);
    let builder = Orb::builder().listen("tcp:127.0.0.1:0");
    (builder.on_event(move |event| list.lock().push(event.clone())).build().unwrap(), told)
}

fn until_told(told: &Told, is_it: impl Fn(&Event) -> bool) -> Event {
    let end = clock::now() + Duration::from_secs(60);
    loop {
        if let Some(event) = told.lock().iter().find(|event| is_it(event)) {
            return event.clone();
        }
        assert!(!end.is_past(), "the ORB does not report the event");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn forgotten(set_up: impl FnOnce(&Orb)) -> Vec<String> {
    let (orb, told) = server();
    set_up(&orb);
    let policies = PoaPolicies { threading: Threading::MainThread, ..PoaPolicies::default() };
    let poa = orb.root_poa().create_poa("main", None, policies).unwrap();
    poa.manager().activate().unwrap();
    let object = poa.activate(&Reporter::new(&orb).servant()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| orb.run());
        // `run` makes its report before it serves this call.
        scope.spawn(|| call_who(&object).unwrap()).join().unwrap();
        orb.shutdown(true).unwrap();
    });
    let manager = |event: &Event| match event {
        Event::PoaManagerNeverActivated { manager } => Some(manager.clone()),
        _ => None,
    };
    told.lock().iter().filter_map(manager).collect()
}

fn activate(orb: &Orb, child: Option<&str>) -> ObjectRef {
    let root = orb.root_poa();
    let poa = child.map_or(root.clone(), |name| root.create_poa(name, None, PoaPolicies::default()).unwrap());
    poa.activate(&Reporter::new(orb).servant()).unwrap()
}

#[test]
fn run_reports_never_activated_managers_with_objects() {
    assert_eq!(forgotten(|_| ()), [""; 0]);
    assert_eq!(forgotten(|orb| drop(activate(orb, None))), ["RootPOAManager"]);
    let all_active = |orb: &Orb| {
        activate(orb, None);
        orb.root_poa().manager().activate().unwrap();
    };
    assert_eq!(forgotten(all_active), [""; 0]);
    let child_forgotten = |orb: &Orb| {
        all_active(orb);
        activate(orb, Some("child"));
    };
    assert_eq!(forgotten(child_forgotten).len(), 1);
    let holding = |orb: &Orb| {
        all_active(orb);
        orb.root_poa().manager().hold_requests(false).unwrap();
    };
    assert_eq!(forgotten(holding), [""; 0]);
}

#[test]
fn never_activated_managers_are_printed_without_an_event_handler() {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "--ignored", "--nocapture", "part_with_a_manager_that_is_never_activated"]);
    let mut part = program.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(part.stderr.take().unwrap()).lines().map_while(Result::ok);
    let told = lines.into_iter().any(|line| line.contains("RootPOAManager has never been activated"));
    part.kill().unwrap();
    part.wait().unwrap();
    assert!(told);
}

#[test]
#[ignore = "a part of never_activated_managers_are_printed_without_an_event_handler"]
fn part_with_a_manager_that_is_never_activated() {
    let orb = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    activate(&orb, None);
    // Another test reads the output of this process and ends the process.
    std::thread::spawn(move || orb.run());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn long_held_requests_are_reported_and_run_after_activation() {
    for in_process in [false, true] {
        let (orb, told) = server();
        let near = activate(&orb, None);
        let client = Orb::builder().build().unwrap();
        let far = client.string_to_object(&near.to_string()).unwrap().unwrap();
        let object = if in_process { near } else { far };
        std::thread::scope(|scope| {
            let called = scope.spawn(|| call_who(&object.with_timeout(Duration::from_secs(120))));
            let event = until_told(&told, |event| matches!(event, Event::PoaManagerHoldsRequests { .. }));
            let Event::PoaManagerHoldsRequests { manager, requests, oldest: held, was_active } = &event else {
                unreachable!()
            };
            assert_eq!((manager.as_str(), *requests, *was_active), ("RootPOAManager", 1, false));
            assert!(*held >= Duration::from_secs(1));
            assert!(event.to_string().contains("never been activated"), "{event}");
            orb.root_poa().manager().activate().unwrap();
            called.join().unwrap().unwrap();
        });
    }
}
