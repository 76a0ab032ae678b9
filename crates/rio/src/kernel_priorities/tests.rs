//! Tests of kernel priorities, each in a network namespace with the link `rio0` to `rio1`.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use corelane_net::{Endpoint, IoClass, IoProperties, Transport};
use corelane_sys::clock::Monotonic;
use corelane_sys::interface::Offload;
use corelane_sys::{socket, thread};

use super::*;
use crate::feature_level::FeatureLevel;
use crate::{RioConfig, RioTransport};

fn run(program: &str, words: &str) -> String {
    let output = Command::new(program).args(words.split(' ')).output().expect("iproute2 is installed");
    assert!(output.status.success(), "{program} {words}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn root() -> RootDiscipline {
    let netlink = Netlink::open(NetlinkFamily::Route).unwrap();
    transmit_classes::root_discipline(&netlink, interface::index("rio0").unwrap()).unwrap()
}

fn threaded() -> String {
    let settings = InterfaceSettings::open().unwrap();
    fs::read_to_string(settings.of("rio0").join("threaded")).unwrap().trim().to_owned()
}

/// Runs `body` with a folder for journals, in a network namespace with the link `rio0`. If the
/// process lacks a capability, prints its name and does not run `body`.
fn with_link(has_napi: bool, body: impl FnOnce(&Path) + Send) {
    let missing = process::missing_namespace_capability()
        .or_else(|| crate::level_control::capabilities().missing_for(FeatureLevel::KernelPriorities));
    if let Some(name) = missing {
        return println!("not run: the process lacks {name}");
    }
    let in_namespace = || {
        process::enter_new_network_namespace().unwrap();
        run("ip", "link set lo up");
        run("ip", "link add rio0 type veth peer name rio1");
        interface::set_offload("rio0", Offload::MergedSegments, has_napi).unwrap();
        run("ip", "link set rio1 up");
        run("ip", "link set rio0 up");
        let folder = std::env::temp_dir().join(format!("corelane-rio-{}", thread::current_tid().as_raw()));
        body(&folder);
        fs::remove_dir_all(&folder).unwrap();
    };
    std::thread::scope(|scope| scope.spawn(in_namespace).join().unwrap());
}

fn config(folder: &Path) -> RioConfig {
    RioConfig::for_interface("rio0").max_level(FeatureLevel::KernelPriorities).journal_folder(folder)
}

fn lane(native_priority: Option<u8>) -> IoProperties {
    IoProperties { class: IoClass::Priority, native_priority, cores: None }
}

fn wait_until(reached: impl Fn() -> bool) {
    let deadline = Monotonic::now() + Duration::from_secs(60);
    while !reached() {
        assert!(!deadline.is_past());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the scheduling class and the priority of each receive thread of `rio0`.
fn receive_scheduling() -> Vec<Scheduling> {
    let instances = receive_threads::instances(interface::index("rio0").unwrap()).unwrap();
    instances.iter().map(|instance| instance.found("rio0").unwrap()).collect()
}

#[test]
fn streams_have_classes_and_the_receive_threads_their_highest_priority() {
    with_link(true, |folder| {
        let sees_threads = thread::find_kernel_thread("kthreadd").unwrap().is_some();
        let transport = RioTransport::new(config(folder).max_best_effort_send_rate(Some(1_000_000)));
        transport.attach_orb();
        assert_eq!(
            (transport.level(), threaded().as_str(), root()),
            (FeatureLevel::KernelPriorities, "1", RootDiscipline::Ours)
        );
        let local = Endpoint::tcp("127.0.0.1", 0);
        let [low, high] =
            [3, 40].map(|priority| transport.listen_with_io_properties(&local, &lane(Some(priority))).unwrap());
        let classes = run("tc", "class show dev rio0");
        for class in ["c0e0:1 root prio 7 ", "c0e0:16 root prio 6 ", "c0e0:26 root prio 4 "] {
            assert!(classes.contains(class), "{class} in {classes}");
        }
        assert!(classes.contains("rate 8Mbit ceil 8Mbit"), "{classes}");
        if sees_threads {
            assert_eq!(transport.missing_priorities_reason(), None);
            assert_eq!(receive_scheduling(), [Scheduling::Fifo(40)]);
        } else {
            assert!(transport.missing_priorities_reason().unwrap().contains("does not see the thread"));
        }
        // The client's connections are the third stream.
        let client = transport
            .connect_with_io_properties(low.local_endpoint(), &Default::default(), &lane(Some(3)), None)
            .unwrap();
        let fd = client.readiness_descriptor().unwrap();
        assert_eq!(socket::priority(fd).unwrap(), class_of_stream(3));
        client.set_dscp(46).unwrap();
        assert_eq!(socket::priority(fd).unwrap(), class_of_stream(3));
        drop(high);
        wait_until(|| !run("tc", "class show dev rio0").contains("c0e0:26 "));
        wait_until(|| !sees_threads || receive_scheduling() == [Scheduling::Fifo(3)]);
        transport.detach_orb();
        assert_eq!(
            (transport.level(), threaded().as_str(), root()),
            (FeatureLevel::PlainTcp, "0", RootDiscipline::Default)
        );
        assert_eq!(fs::read_dir(folder).unwrap().count(), 0);
    });
}

/// Fails if the discipline of another owner is replaced, or if the level does not say why it is
/// low.
#[test]
fn foreign_discipline_is_kept_and_named() {
    with_link(true, |folder| {
        run("tc", "qdisc add dev rio0 root handle 7: htb");
        let transport = RioTransport::new(config(folder));
        // The receive threads suffice for the level.
        assert_eq!(transport.level(), FeatureLevel::KernelPriorities);
        let lack = transport.missing_priorities_reason().unwrap();
        assert_eq!(lack, "rio0 has the queueing discipline htb 7: of another owner");
        drop(transport);
        interface::set_offload("rio0", Offload::MergedSegments, false).unwrap();
        let transport = RioTransport::new(config(folder));
        assert_eq!(transport.level(), FeatureLevel::SocketOptions);
        assert_eq!(transport.level_limit_reason(), lack);
        assert_eq!(transport.missing_priorities_reason(), Some(format!("{NO_RECEIVE_THREADS}; {lack}")));
        drop(transport);
        assert_eq!(root(), RootDiscipline::Foreign("htb 7:".to_owned()));
    });
}

/// Fails if receive threads that another owner has started get the priority of a stream.
#[test]
fn foreign_receive_threads_are_kept_and_named() {
    with_link(true, |folder| {
        let index = interface::index("rio0").unwrap();
        let settings = InterfaceSettings::open().unwrap();
        let is_foreign = || has_foreign_receive_threads("rio0", index, &settings, folder);
        assert!(!is_foreign());
        fs::write(settings.of("rio0").join("threaded"), "1").unwrap();
        assert!(is_foreign());
        let transport = RioTransport::new(config(folder));
        let _lane = transport.listen_with_io_properties(&Endpoint::tcp("127.0.0.1", 0), &lane(Some(40))).unwrap();
        assert_eq!(transport.missing_priorities_reason().as_deref(), Some(FOREIGN_RECEIVE_THREADS));
        if thread::find_kernel_thread("kthreadd").unwrap().is_some() {
            assert_eq!(receive_scheduling(), [Scheduling::Other]);
        }
        drop(transport);
        assert_eq!(threaded(), "1");
    });
}

/// Fails if the creation replaces a discipline that was added after the look-up.
#[test]
fn creation_replaces_no_discipline_that_was_added_meanwhile() {
    with_link(true, |folder| {
        fs::create_dir_all(folder).unwrap();
        let netlink = Netlink::open(NetlinkFamily::Route).unwrap();
        let index = interface::index("rio0").unwrap();
        run("tc", "qdisc add dev rio0 root handle 7: htb");
        let error = transmit_classes::create(&netlink, index, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(root(), RootDiscipline::Foreign("htb 7:".to_owned()));
        run("tc", "qdisc del dev rio0 root");
        transmit_classes::create(&netlink, index, None).unwrap();
        assert_eq!(root(), RootDiscipline::Ours);
    });
}

#[test]
fn interface_without_receive_threads_has_classes() {
    with_link(false, |folder| {
        let transport = RioTransport::new(config(folder));
        assert_eq!(
            (transport.level(), threaded().as_str(), root()),
            (FeatureLevel::KernelPriorities, "0", RootDiscipline::Ours)
        );
        assert_eq!(transport.missing_priorities_reason().as_deref(), Some(NO_RECEIVE_THREADS));
    });
}

#[test]
fn interface_has_the_priorities_of_one_owner() {
    with_link(true, |folder| {
        let first = RioTransport::new(config(folder));
        assert!(is_owned(interface::index("rio0").unwrap(), folder).unwrap());
        let second = RioTransport::new(config(folder));
        assert_eq!(second.level(), FeatureLevel::SocketOptions);
        assert_eq!(second.level_limit_reason(), "another process has the priorities of rio0");
        assert!(restore_interface("rio0", folder).is_err());
        drop((first, second));
        assert!(!is_owned(interface::index("rio0").unwrap(), folder).unwrap());
        assert_eq!(RioTransport::new(config(folder)).level(), FeatureLevel::KernelPriorities);
    });
}

/// Fails if another user can hold the lock of a journal, or replace the journal.
#[test]
fn journal_and_folder_are_for_one_user() {
    with_link(true, |folder| {
        drop(KernelPriorities::take("rio0", folder).unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!(mode(folder), 0o700);
        let path = journal_path(interface::index("rio0").unwrap(), folder).unwrap();
        let taken = KernelPriorities::take("rio0", folder).unwrap();
        assert_eq!(mode(&path), 0o600);
        drop(taken);
        std::os::unix::fs::symlink(folder.join("elsewhere"), &path).unwrap();
        assert!(KernelPriorities::take("rio0", folder).unwrap_err().contains("cannot be written"));
        assert!(!folder.join("elsewhere").exists());
        fs::remove_file(&path).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o770)).unwrap();
        let error = KernelPriorities::take("rio0", folder).unwrap_err();
        assert!(error.contains("another user owns the folder"), "{error}");
        if process::effective_user_id() == 0 {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).unwrap();
            std::os::unix::fs::chown(folder, Some(65_534), None).unwrap();
            let error = KernelPriorities::take("rio0", folder).unwrap_err();
            assert!(error.contains("another user owns the folder"), "{error}");
        }
    });
}

/// An examination holds the lock of a journal for a moment. Fails if `lock` gives up at once.
#[test]
fn lock_that_is_held_for_a_moment_is_awaited() {
    with_link(true, |folder| {
        let path = journal_path(interface::index("rio0").unwrap(), folder).unwrap();
        own_folder(folder).unwrap();
        // If the machine pauses, the lock is held for longer than `LOCK_PATIENCE`, so there are 20
        // attempts.
        let is_awaited = (0..20).any(|_| {
            let held = lock(folder, &path).unwrap();
            let end = Monotonic::now() + Duration::from_millis(10);
            std::thread::scope(|scope| {
                let holder = scope.spawn(move || {
                    wait_until(|| end.is_past());
                    drop(held);
                });
                let is_awaited = lock(folder, &path).is_ok();
                holder.join().unwrap();
                is_awaited
            })
        });
        assert!(is_awaited);
    });
}

/// The child drops no value when it ends, like a killed process.
#[test]
fn settings_of_a_killed_process_are_restored() {
    let leave = |folder: &Path| {
        let is_left = process::run_in_child(|| {
            let taken = KernelPriorities::take("rio0", folder).unwrap();
            taken.start_receive_threads().unwrap();
            taken.start_transmit_classes(None).unwrap();
            std::mem::forget(taken);
            true
        });
        assert!(is_left.unwrap());
        assert_eq!((threaded().as_str(), root()), ("1", RootDiscipline::Ours));
        assert!(!is_owned(interface::index("rio0").unwrap(), folder).unwrap());
    };
    with_link(true, |folder| {
        leave(folder);
        assert_eq!(restore_interface("rio0", folder).unwrap(), ["transmit classes", "receive threads"]);
        assert_eq!((threaded().as_str(), root()), ("0", RootDiscipline::Default));
        assert_eq!(restore_interface("rio0", folder).unwrap(), [""; 0]);
        // The next start takes over, and restores the settings from before the killed process.
        leave(folder);
        drop(KernelPriorities::take("rio0", folder).unwrap());
        assert_eq!((threaded().as_str(), root()), ("0", RootDiscipline::Default));
    });
}

#[test]
fn removed_classes_come_back() {
    with_link(true, |folder| {
        let transport = RioTransport::new(config(folder));
        transport.attach_orb();
        let _lane = transport.listen_with_io_properties(&Endpoint::tcp("127.0.0.1", 0), &lane(Some(3))).unwrap();
        run("tc", "qdisc del dev rio0 root");
        wait_until(|| run("tc", "class show dev rio0").contains("c0e0:16 root prio 6 "));
        transport.detach_orb();
    });
}

#[test]
fn interface_that_is_made_again_gets_its_priorities() {
    with_link(true, |folder| {
        let transport = RioTransport::new(config(folder));
        transport.attach_orb();
        run("ip", "link delete rio0");
        wait_until(|| transport.level() == FeatureLevel::SocketOptions);
        run("ip", "link add rio0 type veth peer name rio1");
        run("ip", "link set rio1 up");
        run("ip", "link set rio0 up");
        wait_until(|| transport.level() == FeatureLevel::KernelPriorities);
        assert_eq!(root(), RootDiscipline::Ours);
        transport.detach_orb();
        assert_eq!(root(), RootDiscipline::Default);
    });
}
