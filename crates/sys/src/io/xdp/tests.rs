use std::net::UdpSocket;
use std::process::Command;

use super::*;
use crate::bpf::{
    self, Assembler, AttachMode, Helper, LoadedProgram, Map, MapKind, MapSymbol, Register, Width, XdpAction, XdpLink,
};
use crate::clock::Monotonic;
use crate::{interface, poll, process};

const SIZES: XdpFrameMemory = XdpFrameMemory { frames: 4, frame_size: 2048, fill_entries: 8 };

/// Returns an XDP program that sends each frame to the socket at index 0 of `map`. The program
/// passes the frame if the map has no socket.
fn redirecting(map: &Map) -> LoadedProgram {
    let mut asm = Assembler::new();
    asm.load(Width::Word, Register::R2, Register::R1, 16).load_map(Register::R1, MapSymbol(0));
    asm.set(Register::R3, XdpAction::PASS).call(Helper::RedirectMap).exit();
    bpf::load("redirecting", &asm.finish().unwrap(), &[map]).unwrap()
}

fn wait_for(reached: impl Fn() -> bool) {
    let deadline = Monotonic::now() + std::time::Duration::from_secs(60);
    while !reached() {
        assert!(!deadline.is_past());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn frames_reach_the_ring_and_a_full_ring_drops_them() {
    let lack = process::missing_namespace_capability().map(str::to_owned);
    if let Some(refusal) = bpf::unavailable_reason().map(|reason| reason.to_string()).or(lack) {
        return println!("not run: {refusal}");
    }
    let run = || {
        process::enter_new_network_namespace().unwrap();
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        let interface = interface::index("lo").unwrap();
        let queue = Arc::new(XdpQueue::open(interface, 0, SIZES).unwrap());
        assert_eq!(queue.memory_size(), 4 * 2048);
        let [mut first, mut second] = [0; 2].map(|_| XdpReceiver::open(&queue, 2).unwrap());
        let map = Map::create(MapKind::XskMap, "sockets", 4, 4, 1).unwrap();
        let program = redirecting(&map);
        let _link = XdpLink::attach(&program, interface, AttachMode::Generic).unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let send = |text: &str| socket.send_to(text.as_bytes(), ("127.0.0.1", 9)).unwrap();
        let set =
            |receiver: &XdpReceiver| map.update_u32(0, receiver.socket().as_fd().as_raw_fd().cast_unsigned()).unwrap();
        set(&first);
        assert!(!poll::wait_readable(first.socket().as_fd(), Some(Monotonic::now())).unwrap());
        // The test sends many more frames than the memory holds, so it succeeds only if each frame
        // becomes free again.
        for number in 0..50 {
            let text = format!("datagram {number}");
            send(&text);
            assert!(
                poll::wait_readable(
                    first.socket().as_fd(),
                    Some(Monotonic::now() + std::time::Duration::from_secs(60))
                )
                .unwrap()
            );
            let length = first.head_length().unwrap();
            let is_mine = first.receive(|frame| {
                assert_eq!(frame.len(), length as usize);
                frame.ends_with(text.as_bytes())
            });
            assert_eq!(is_mine, Some(true));
        }
        assert_eq!(first.receive(|_| ()), None);
        for _ in 0..7 {
            send("too many");
        }
        wait_for(|| first.socket().statistics().unwrap().ring_full == 5);
        assert_eq!(first.waiting(), 2);
        // The full ring of one socket leaves the others their frames.
        set(&second);
        send("other");
        wait_for(|| second.waiting() == 1);
        assert_eq!(second.receive(|frame| frame.ends_with(b"other")), Some(true));
        assert_eq!(second.socket().statistics().unwrap(), XdpStatistics::default());
        send(&"long".repeat(500));
        wait_for(|| second.socket().statistics().unwrap().dropped == 1);
        drop((first, second));
        drop(queue);
        // The kernel releases the queue some time after the last descriptor is closed.
        wait_for(|| XdpQueue::open(interface, 0, SIZES).is_ok());
        let unknown = XdpQueue::open(interface, 99, SIZES).unwrap_err();
        assert_eq!(unknown.kind(), io::ErrorKind::InvalidInput);
    };
    std::thread::spawn(run).join().unwrap();
}
