//! Real-time I/O: lanes and clients whose packets have a service class.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use corelane::rt::{LaneConfig, LanesConfig, RtClientPolicies};
use corelane::{Canceller, IoClass, ObjectRef, Orb, SystemExceptionKind};
use corelane_rio::admission::{ProcessingCost, StreamResources};
use corelane_rio::examination::examine;
use corelane_rio::feature_level::FeatureLevel;
use corelane_rio::{RioConfig, RioTransport, StreamAdmission};
use corelane_sys::bpf::AttachMode;
use corelane_sys::clock::Monotonic;
use corelane_sys::interface::Offload;
use corelane_sys::{interface, process, thread};
use corelane_tests::real_time::{Reporter, call_who};
use corelane_wire::Encoder;

#[path = "../src/two_namespaces.rs"]
mod two_namespaces;

use two_namespaces::{HIGH, LOW, channel, has_xdp, in_two_namespaces, ip, is_refused, lanes, object, wait_until, with};

const CALLS: u64 = 50;

/// Calls `who` with this number of octets of arguments, which make the request larger and which
/// `who` ignores.
fn call_with(object: &ObjectRef, octets: usize) {
    static OPERATION: corelane::mapping::Operation = corelane::mapping::Operation::new("who");
    let octets = vec![7; octets];
    let write = |encoder: &mut Encoder<'_>| {
        encoder.write_bytes(&octets);
        Ok(())
    };
    object.invoke(&OPERATION, &write).unwrap();
}

#[test]
fn a_lane_with_a_budget_serves_calls_and_receives_its_bytes() {
    let period = Duration::from_millis(5);
    let transport = Arc::new(RioTransport::new(RioConfig::default()));
    assert_eq!(transport.level(), FeatureLevel::SocketOptions, "{}", transport.level_limit_reason());
    let server = with(&transport).listen("tcp:127.0.0.1:0").build().unwrap();
    let pool = lanes(&server, IoClass::Guaranteed { bytes: 4_000, period });
    let (low, high) = (object(&server, pool, LOW), object(&server, pool, HIGH));
    let client = Orb::new().unwrap();
    let reached = |object: &ObjectRef| client.string_to_object(&object.to_string()).unwrap().unwrap();
    let (low, high) = (reached(&low), reached(&high));
    assert_eq!((call_who(&low).unwrap().lane, call_who(&high).unwrap().lane), (0, 1));
    // The first period of the call may have the unused bytes of a whole period, so the bound is
    // below 20 periods.
    let begun = Monotonic::now();
    call_with(&high, 80_000);
    assert!(begun.elapsed() > period * 18, "{:?}", begun.elapsed());
    for _ in 0..100 {
        call_with(&high, 10);
    }
    let streams = transport.streams();
    assert_eq!((streams.len(), streams[0].connections), (1, 1), "{streams:?}");
}

#[test]
fn a_lane_whose_stream_does_not_fit_is_refused_with_the_bound() {
    let cost = ProcessingCost { per_period: 1_000, per_packet: 1_000, per_kibibyte: 100 };
    let admission = StreamAdmission::new(StreamResources::new(10_000_000, cost));
    let transport = Arc::new(RioTransport::new(RioConfig::default().admission(admission)));
    let server = with(&transport).listen("tcp:127.0.0.1:0").build().unwrap();
    let create = |bytes| {
        let io = IoClass::Guaranteed { bytes, period: Duration::from_millis(10) };
        let lanes = [LaneConfig::default().priority(LOW), LaneConfig::default().priority(HIGH).io_class(io)];
        server.real_time().create_threadpool_with_lanes(&LanesConfig::default().lanes(lanes))
    };
    let refusal = create(20_000).unwrap_err().to_string();
    let fits = refusal.split_once("over 8000000; ").unwrap_or_else(|| panic!("{refusal}")).1;
    let bytes = fits.split_once(" bytes in each period would fit").unwrap_or_else(|| panic!("{refusal}")).0;
    create(bytes.parse().unwrap()).unwrap();
    assert_eq!(transport.streams().len(), 1);
}

#[test]
fn a_client_with_a_budget_gets_its_replies() {
    let transport = Arc::new(RioTransport::new(RioConfig::default()));
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    server.root_poa().manager().activate().unwrap();
    let object = server.root_poa().activate(&Reporter::new(&server).servant()).unwrap();
    let client = with(&transport).build().unwrap();
    let plain = client.string_to_object(&object.to_string()).unwrap().unwrap();
    let io = Some(IoClass::Guaranteed { bytes: 1_000, period: Duration::from_millis(1) });
    let own = plain.with_rt_policies(&RtClientPolicies { io_class: io, ..RtClientPolicies::default() }).unwrap();
    let first = call_who(&own).unwrap();
    assert_ne!(first.connection, call_who(&plain).unwrap().connection);
    for _ in 0..100 {
        assert_eq!(call_who(&own).unwrap().connection, first.connection);
    }
    let streams = transport.streams();
    assert_eq!((streams.len(), streams[0].connections), (1, 1), "{streams:?}");
}

#[test]
fn a_call_whose_reply_waits_for_the_budget_is_cancelled() {
    let transport = Arc::new(RioTransport::new(RioConfig::default()));
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    server.root_poa().manager().activate().unwrap();
    let object = server.root_poa().activate(&Reporter::new(&server).servant()).unwrap();
    let client = with(&transport).build().unwrap();
    let plain = client.string_to_object(&object.to_string()).unwrap().unwrap();
    let io = Some(IoClass::Guaranteed { bytes: 16, period: Duration::from_secs(3_600) });
    let own = plain.with_rt_policies(&RtClientPolicies { io_class: io, ..RtClientPolicies::default() }).unwrap();
    let canceller = Canceller::new().unwrap();
    let (to_test, ended) = channel();
    let called = own.with_canceller(&canceller);
    let caller = std::thread::spawn(move || to_test.send(call_who(&called).map(drop).unwrap_err()).unwrap());
    let is_waiting =
        || transport.streams().first().is_some_and(|stream| stream.budget.unwrap().waiting_connections == 1);
    wait_until(is_waiting);
    canceller.cancel();
    let exception = ended.recv_timeout(Duration::from_secs(60)).expect("the call ends");
    assert_eq!(exception.kind(), SystemExceptionKind::Transient, "{exception}");
    caller.join().unwrap();
}

#[test]
fn a_call_beyond_the_maximum_of_connections_names_the_maximum() {
    let transport = Arc::new(RioTransport::new(RioConfig::default().max_connections(0)));
    let server = Orb::builder().listen("tcp:127.0.0.1:0").build().unwrap();
    server.root_poa().manager().activate().unwrap();
    let object = server.root_poa().activate(&Reporter::new(&server).servant()).unwrap();
    let client = with(&transport).build().unwrap();
    let plain = client.string_to_object(&object.to_string()).unwrap().unwrap();
    let io = Some(IoClass::Priority);
    let own = plain.with_rt_policies(&RtClientPolicies { io_class: io, ..RtClientPolicies::default() }).unwrap();
    let exception = call_who(&own).map(drop).unwrap_err();
    assert!(exception.to_string().contains("has its maximum of 0 connections"), "{exception}");
    call_who(&plain).unwrap();
}

#[test]
fn frames_of_a_lane_take_the_path_of_its_stream() {
    if is_refused() {
        return;
    }
    let (to_server, called) = channel::<u32>();
    in_two_namespaces(
        move |to_client| {
            let config = RioConfig::for_interface("rio0").attach_mode(AttachMode::Generic);
            let transport = Arc::new(RioTransport::new(config.has_best_effort_thread(true)));
            assert_eq!(transport.level(), FeatureLevel::StreamSteering, "{}", transport.level_limit_reason());
            assert!(has_xdp());
            let server = with(&transport).listen("tcp:10.99.0.1:0").build().unwrap();
            let pool = lanes(&server, IoClass::Priority);
            let (low, high) = (object(&server, pool, LOW), object(&server, pool, HIGH));
            let frames = || transport.streams()[0].frame_counts.unwrap();
            let calls = |object: &ObjectRef, lane| {
                to_client.send(Some(object.to_string())).unwrap();
                assert_eq!(called.recv().unwrap(), lane);
            };
            calls(&low, 0);
            let before = frames();
            assert_eq!((before.queued_frames, before.undeliverable_frames), (0, 0));
            let best_effort = transport.best_effort_frames().unwrap();
            assert!(best_effort.queued_frames >= CALLS && best_effort.undeliverable_frames == 0, "{best_effort:?}");
            calls(&high, 1);
            let after = frames();
            assert!(after.queued_frames >= CALLS, "{after:?}");
            assert_eq!(after.undeliverable_frames, 0);
            calls(&low, 0);
            assert_eq!(frames().queued_frames, after.queued_frames);
            drop(server);
            assert_eq!(transport.level(), FeatureLevel::PlainTcp);
            wait_until(|| !has_xdp());
            to_client.send(None).unwrap();
        },
        move |reference| {
            let client = Orb::new().unwrap();
            let object = client.string_to_object(&reference).unwrap().unwrap();
            let lanes: Vec<u32> = (0..CALLS).map(|_| call_who(&object).unwrap().lane).collect();
            // The connection ends before the server looks at the counts.
            drop(client);
            assert!(lanes.iter().all(|lane| *lane == lanes[0]));
            to_server.send(lanes[0]).unwrap();
        },
    );
}

/// The client is an ordinary ORB, which does not notice the packet rings of the server's lane.
#[test]
fn a_lane_with_a_budget_in_packets_serves_calls_within_it() {
    const PACKETS: u32 = 4;
    if is_refused() {
        return;
    }
    let (to_server, called) = channel::<()>();
    in_two_namespaces(
        move |to_client| {
            let config = RioConfig::for_interface("rio0").attach_mode(AttachMode::Driver);
            let transport = Arc::new(RioTransport::new(config));
            let server = with(&transport).listen("tcp:10.99.0.1:0").build().unwrap();
            let class = IoClass::GuaranteedPackets { packets: PACKETS, period: Duration::from_millis(1) };
            let high = object(&server, lanes(&server, class), HIGH);
            to_client.send(Some(high.to_string())).unwrap();
            called.recv_timeout(Duration::from_secs(60)).unwrap();
            let stream = &transport.streams()[0];
            let (frames, counts) = (stream.frame_counts.unwrap(), stream.packets.unwrap());
            assert!(counts.processed >= CALLS && counts.max_period_packets <= PACKETS.into(), "{counts:?}");
            assert_eq!((frames.undeliverable_frames, counts.lost, counts.ring_full), (0, 0, 0), "{frames:?}");
            to_client.send(None).unwrap();
        },
        move |reference| {
            let client = Orb::new().unwrap();
            let object = client.string_to_object(&reference).unwrap().unwrap();
            for _ in 0..CALLS {
                call_with(&object, 5_000);
                assert_eq!(call_who(&object).unwrap().lane, 1);
            }
            to_server.send(()).unwrap();
        },
    );
}

/// The client is an ordinary ORB. Fails if the lane's packets wait for a thread of the kernel.
#[test]
fn the_packets_of_a_lane_of_low_latency_are_processed_in_the_receive_context() {
    if is_refused() {
        return;
    }
    let (to_server, called) = channel::<()>();
    in_two_namespaces(
        move |to_client| {
            let config = RioConfig::for_interface("rio0").attach_mode(AttachMode::Generic);
            let transport = Arc::new(RioTransport::new(config.has_best_effort_thread(true)));
            let server = with(&transport).listen("tcp:10.99.0.1:0").build().unwrap();
            let class = IoClass::LowLatency { packets: 1_000_000, period: Duration::from_secs(1) };
            let high = object(&server, lanes(&server, class), HIGH);
            to_client.send(Some(high.to_string())).unwrap();
            called.recv_timeout(Duration::from_secs(60)).unwrap();
            let frames = transport.streams()[0].frame_counts.unwrap();
            assert!(frames.receive_context_frames >= CALLS, "{frames:?}");
            assert_eq!((frames.queued_frames, frames.undeliverable_frames), (0, 0));
            to_client.send(None).unwrap();
        },
        move |reference| {
            let client = Orb::new().unwrap();
            let object = client.string_to_object(&reference).unwrap().unwrap();
            (0..=CALLS).for_each(|_| assert_eq!(call_who(&object).unwrap().lane, 1));
            to_server.send(()).unwrap();
        },
    );
}

#[test]
fn the_level_follows_the_link_and_connections_stay() {
    if is_refused() {
        return;
    }
    let (to_server, called) = channel::<()>();
    in_two_namespaces(
        move |to_client| {
            let (level, changes) = channel();
            let level = corelane_sys::lock::Mutex::new("level", corelane_sys::lock::LockScope::Orb, level);
            let config = RioConfig::for_interface("rio0").attach_mode(AttachMode::Generic);
            let config = config.on_level_change(move |change| level.lock().send(change.to).unwrap());
            let transport = Arc::new(RioTransport::new(config));
            let next = || changes.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_eq!((next(), next()), (FeatureLevel::SocketOptions, FeatureLevel::StreamSteering));
            let server = with(&transport).listen("tcp:10.99.0.1:0").build().unwrap();
            let high = object(&server, lanes(&server, IoClass::Priority), HIGH);
            let call = || {
                to_client.send(Some(high.to_string())).unwrap();
                called.recv().unwrap();
            };
            call();
            ip("link set rio0 down");
            assert_eq!(next(), FeatureLevel::SocketOptions);
            assert!(!has_xdp());
            ip("link set rio0 up");
            assert_eq!(next(), FeatureLevel::StreamSteering);
            let before = transport.streams()[0].frame_counts.unwrap().queued_frames;
            call();
            assert!(transport.streams()[0].frame_counts.unwrap().queued_frames > before);
            assert_eq!(transport.streams()[0].connections, 1);
            to_client.send(None).unwrap();
        },
        {
            let client = std::cell::OnceCell::new();
            move |reference| {
                let (_, object) = client.get_or_init(|| {
                    let client = Orb::new().unwrap();
                    let object = client.string_to_object(&reference).unwrap().unwrap();
                    (client, object)
                });
                call_who(object).unwrap();
                to_server.send(()).unwrap();
            }
        },
    );
}

#[test]
fn the_program_of_a_killed_process_vanishes() {
    if is_refused() {
        return;
    }
    in_two_namespaces(
        |to_client| {
            let arguments = ["--exact", "a_process_that_holds_the_interface", "--ignored", "--nocapture"];
            let mut holder = Command::new(std::env::current_exe().unwrap())
                .args(arguments)
                .env("CORELANE_HOLD", "rio0")
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut lines = BufReader::new(holder.stdout.take().unwrap()).lines().map(|line| line.unwrap());
            assert!(lines.any(|line| line.ends_with("stream steering")));
            assert!(has_xdp());
            let other = RioTransport::new(RioConfig::for_interface("rio0").attach_mode(AttachMode::Generic));
            assert_eq!(other.level(), FeatureLevel::SocketOptions);
            assert!(other.level_limit_reason().contains("another owner"), "{}", other.level_limit_reason());
            // `kill` sends SIGKILL.
            holder.kill().unwrap();
            holder.wait().unwrap();
            wait_until(|| !has_xdp());
            to_client.send(None).unwrap();
        },
        |_| {},
    );
}

#[test]
#[ignore = "a part of the_program_of_a_killed_process_vanishes"]
fn a_process_that_holds_the_interface() {
    let Ok(name) = std::env::var("CORELANE_HOLD") else { return };
    let transport = RioTransport::new(RioConfig::for_interface(name).attach_mode(AttachMode::Generic));
    println!("{}", transport.level());
    // The process ends after a minute if it is not killed.
    std::thread::sleep(Duration::from_secs(60));
}

/// The child runs in a new PID namespace, in which it does not see the kernel's threads.
#[test]
fn the_examination_names_the_level_of_a_transport() {
    if is_refused() {
        return;
    }
    let arguments = ["--exact", "a_process_that_examines_an_interface", "--ignored", "--nocapture"];
    let output = Command::new("unshare")
        .args(["--net", "--pid", "--fork", "--mount-proc"])
        .arg(std::env::current_exe().unwrap())
        .args(arguments)
        .env("CORELANE_EXAMINE", "lo")
        .output()
        .expect("util-linux is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("levels: stream steering, stream steering\n"), "{text}{output:?}");
    assert!(text.contains("kernel threads: false\n"), "{text}");
}

/// Fails if the level does not follow from the privileges, or if the reason does not name the
/// missing privilege.
#[test]
fn the_examination_says_which_privilege_keeps_the_level_low() {
    if is_refused() {
        return;
    }
    let run = || {
        process::enter_new_network_namespace().unwrap();
        ip("link add rio0 type veth peer name rio1");
        interface::set_offload("rio0", Offload::MergedSegments, true).unwrap();
        ip("link set rio1 up");
        ip("link set rio0 up");
        for (without, level, limit) in [
            ("+all", "stream steering", ""),
            ("-bpf,-sys_admin", "kernel priorities", "the process lacks CAP_BPF"),
            ("-all", "socket options", "the process lacks CAP_NET_ADMIN"),
        ] {
            let output = Command::new("setpriv")
                .args(["--bounding-set", without])
                .arg(std::env::current_exe().unwrap())
                .args(["--exact", "a_process_that_says_what_keeps_its_level_low", "--ignored", "--nocapture"])
                .env("CORELANE_EXAMINE", "rio0")
                .output()
                .expect("util-linux is installed");
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains(&format!("level: {level}, limit: {limit}.\n")), "{without}: {text}{output:?}");
        }
    };
    std::thread::spawn(run).join().unwrap();
}

#[test]
#[ignore = "a part of the_examination_says_which_privilege_keeps_the_level_low"]
fn a_process_that_says_what_keeps_its_level_low() {
    let Ok(name) = std::env::var("CORELANE_EXAMINE") else { return };
    let examination = examine(&name);
    println!("\nlevel: {}, limit: {}.\n{examination:?}", examination.level, examination.level_limit_reason);
}

/// Returns the number of packets that `rio0` has sent in the transmit class.
fn packets_of_class(class: &str) -> u64 {
    let output = Command::new("tc").args(["-s", "class", "show", "dev", "rio0"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = text.split("class htb ").find(|part| part.starts_with(class)).unwrap_or_else(|| panic!("{text}"));
    // The line has the form `Sent 0 bytes 0 pkt (dropped 0, ...`.
    let words: Vec<&str> = found.split_once("Sent ").unwrap().1.split(' ').collect();
    words[2].parse().unwrap()
}

/// Fails if replies of the lane leave in the class of best effort, or if another context than the
/// receive thread processes received packets.
#[test]
fn lane_with_kernel_priorities_has_its_transmit_class_and_receive_thread() {
    if is_refused() {
        return;
    }
    let (to_server, called) = channel::<()>();
    in_two_namespaces(
        move |to_client| {
            interface::set_offload("rio0", Offload::MergedSegments, true).unwrap();
            let folder = std::env::temp_dir().join(format!("corelane-priorities-{}", std::process::id()));
            let config = RioConfig::for_interface("rio0").max_level(FeatureLevel::KernelPriorities);
            let transport = Arc::new(RioTransport::new(config.journal_folder(&folder)));
            let server = with(&transport).listen("tcp:10.99.0.1:0").build().unwrap();
            assert_eq!(transport.level(), FeatureLevel::KernelPriorities, "{}", transport.level_limit_reason());
            let high = object(&server, lanes(&server, IoClass::Priority), HIGH);
            let before = packets_of_class("c0e0:16 ");
            to_client.send(Some(high.to_string())).unwrap();
            called.recv_timeout(Duration::from_secs(60)).unwrap();
            let sent = packets_of_class("c0e0:16 ") - before;
            assert!(sent >= CALLS, "{sent} packets have left in the class of the lane");
            // The receive thread sleeps between packets, so the number of its sleeps shows that it
            // has processed them.
            if thread::find_kernel_thread("kthreadd").unwrap().is_some() {
                let switches = switches_of_receive_thread();
                assert!(switches >= CALLS / 2, "the receive thread has slept {switches} times");
            }
            to_client.send(None).unwrap();
            drop((server, transport));
            std::fs::remove_dir_all(&folder).unwrap();
        },
        move |reference| {
            // With this setting the client's side sends complete segments. Other packets would
            // bypass the receive thread.
            interface::set_offload("rio1", Offload::SentChecksums, false).unwrap();
            let client = Orb::new().unwrap();
            let object = client.string_to_object(&reference).unwrap().unwrap();
            for _ in 0..CALLS {
                assert_eq!(call_who(&object).unwrap().lane, 1);
            }
            to_server.send(()).unwrap();
        },
    );
}

/// Returns the number of times that the newest receive thread of `rio0` has slept. A thread's name
/// has the number of its instance.
fn switches_of_receive_thread() -> u64 {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().path().into());
    let of = |path: std::path::PathBuf| {
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let instance: u64 = name.trim_end().strip_prefix("napi/rio0-")?.parse().ok()?;
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        Some((instance, count.trim().parse::<u64>().ok()?))
    };
    processes.filter_map(of).max().expect("the receive thread").1
}

#[test]
#[ignore = "a part of the_examination_names_the_level_of_a_transport"]
fn a_process_that_examines_an_interface() {
    let Ok(name) = std::env::var("CORELANE_EXAMINE") else { return };
    ip(&format!("link set {name} up"));
    let transport = RioTransport::new(RioConfig::for_interface(&name).attach_mode(AttachMode::Generic));
    let level = transport.level();
    drop(transport);
    let examination = examine(&name);
    let threads = examination.findings.iter().find(|one| one.feature == "kernel threads").unwrap();
    println!("\nlevels: {level}, {}\nkernel threads: {}", examination.level, threads.is_available);
}
