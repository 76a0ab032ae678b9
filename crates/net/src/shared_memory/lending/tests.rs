use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use corelane_sys::counters;
use corelane_sys::ring::{RingPair, RingSizes};
use corelane_sys::sealed::{SealableBuffer, SealedOctets};
use corelane_sys::socket::DescriptorFilterListener;

use super::files::SLOTS;
use super::*;

const MIB: usize = 1 << 20;

fn sealed(length: usize, value: u8) -> SealedOctets {
    let mut buffer = SealableBuffer::new(length).unwrap();
    buffer.fill(value);
    buffer.seal().unwrap()
}

fn own_peer() -> Peer {
    Peer::Process { pid: 1, uid: process::effective_user_id(), gid: 0 }
}

struct Sides {
    client: Arc<Lending>,
    server: Arc<Lending>,
}

fn sides_of(peer: &Peer, client_limit: usize, server_limit: usize) -> (Option<Arc<Lending>>, Option<Arc<Lending>>) {
    let sizes = RingSizes::at_least(4096, 4096);
    let (ours, memory) = RingPair::create(sizes).unwrap();
    let theirs = RingPair::open(memory.as_fd(), sizes).unwrap();
    let client = Lending::of_client(&PeerState::new(ours), peer, PathBuf::from("/nowhere"), client_limit);
    (client, Lending::of_server(&PeerState::new(theirs), peer, &Channels::new(), server_limit))
}

fn open_channel(client: &Lending, server: &Lending) {
    let (near, far) = socket::pair().unwrap();
    client.channel.set(DescriptorFilterSocket::for_unix_socket(near)).unwrap();
    let Side::Server { channels, name } = &server.side else { panic!() };
    channels.attach(*name, DescriptorFilterSocket::for_unix_socket(far), &own_peer());
}

fn sides(limit: usize) -> Sides {
    let (Some(client), Some(server)) = sides_of(&own_peer(), limit, limit) else { panic!() };
    open_channel(&client, &server);
    Sides { client, server }
}

impl Sides {
    /// Sends an announcement as a client that keeps to no rules.
    fn announce(&self, number: u64, length: u64, slot: u32, emptied: u32, file: BorrowedFd<'_>) {
        let mut bytes = [number.to_le_bytes(), length.to_le_bytes()].concat();
        bytes.extend([slot.to_le_bytes(), emptied.to_le_bytes()].concat());
        let channel = self.client.channel.get().unwrap().as_fd();
        assert_eq!(socket::send_with_descriptor(channel, &bytes, file, socket::WaitMode::Now).unwrap(), 24);
    }

    fn take(&self, number: u64, length: u64) -> io::Result<Buffer> {
        self.server.take([b"head", b""], LentReference { number, length })
    }

    fn refused(&self, number: u64, length: u64) -> String {
        let error = self.take(number, length).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
        error.to_string()
    }
}

fn descriptor(octets: &SealedOctets) -> Arc<SealedFile> {
    SealedFile::containing(octets.as_ref()).unwrap()
}

#[test]
fn channel_header_carries_the_name() {
    let header = channel_header([1, 2, 3]);
    assert_eq!(parse_channel_header(&header), Some([1, 2, 3]));
    assert_eq!(super::super::parse_header(&header), None);
    for octet in 0..MAGIC.len() {
        let mut bad = header;
        bad[octet] ^= 1;
        assert_eq!(parse_channel_header(&bad), None, "octet {octet}");
    }
}

#[test]
fn octets_that_are_lent_again_cost_no_system_call() {
    let Sides { client, server } = sides(MIB);
    for (from, to) in [(&client, &server), (&server, &client)] {
        let octets = sealed(100_000, 7);
        let first = from.lend(octets.as_ref()).unwrap();
        let message = to.take([b"he", b"ad"], first).unwrap();
        assert!(message[..4] == *b"head" && message[4..] == *octets.as_ref());
        let place = message.as_ptr();
        drop(message);
        let before = counters::snapshot().syscalls;
        let again = from.lend(octets.as_ref()).unwrap();
        let message = to.take([b"he", b"ad"], again).unwrap();
        assert_eq!(counters::snapshot().syscalls, before);
        assert_eq!((again, message.as_ptr()), (first, place));
        let part = from.lend(&octets.as_ref()[..50_000]).unwrap();
        assert_eq!(part, LentReference { length: 50_000, ..first });
        assert_eq!(from.lend(&octets.as_ref()[1..]), None);
        assert_eq!(from.lend(&[0; 100]), None);
    }
}

#[test]
fn received_octets_are_lent_on_without_a_copy() {
    let Sides { client, server } = sides(MIB);
    let octets = sealed(100_000, 7);
    let message = server.take([b"head", b""], client.lend(octets.as_ref()).unwrap()).unwrap();
    let back = client.take([b"reply", b""], server.lend(&message[4..]).unwrap()).unwrap();
    drop((message, octets));
    assert!(back[5..].iter().all(|octet| *octet == 7) && back.len() == 100_005);
}

#[test]
fn oldest_files_give_way_and_files_that_have_ended_go_first() {
    let sides = sides(MIB);
    let all: Vec<SealedOctets> = (0..=SLOTS).map(|index| sealed(60_000, index as u8)).collect();
    let send = |octets: &SealedOctets| {
        let reference = sides.client.lend(octets.as_ref()).unwrap();
        assert!(sides.server.take([b"", b""], reference).unwrap()[..] == *octets.as_ref());
        reference.number
    };
    for octets in &all[..SLOTS] {
        send(octets);
    }
    assert_eq!((send(&all[0]), send(&all[SLOTS])), (1, SLOTS as u64 + 1));
    assert!(sides.refused(2, 1).contains("taken back"));
    assert_eq!((send(&all[0]), send(&all[2])), (1, 3));
    // The program has dropped the file with number 4, so the next file replaces it and no other
    // file.
    let mut all = all;
    all.remove(3);
    assert_eq!(send(&sealed(60_000, 1)), SLOTS as u64 + 2);
    assert!(sides.refused(4, 1).contains("taken back"));
    assert_eq!((send(&all[3]), send(&all[0])), (5, 1));
    // Two files of half the limit leave room for no other file.
    let halves = [sealed(MIB / 2, 1), sealed(MIB / 2, 2)];
    let _ = halves.each_ref().map(send);
    assert!(sides.refused(1, 1).contains("taken back") && sides.refused(5, 1).contains("taken back"));
    assert_eq!(sides.client.lend(sealed(MIB + 1, 1).as_ref()), None);
    assert_eq!(send(&halves[0]), SLOTS as u64 + 3);
}

#[test]
fn peer_that_takes_nothing_is_lent_a_bounded_number_of_files() {
    let sides = sides(MIB);
    let lend = |length| sides.client.lend(sealed(length, 1).as_ref()).map(|reference| reference.number);
    let mut lent = 0;
    while let Some(number) = lend(MIB / 4) {
        lent += 1;
        assert_eq!(number, lent);
    }
    // This process has dropped each file, so the next file replaces it. Yet each file counts
    // against the limit until the peer has taken it from the socket.
    assert_eq!(lent, 5);
    assert_eq!(sides.take(lent, 1).unwrap().len(), 5);
    assert_eq!(lend(MIB / 4), Some(lent + 1));
    assert_eq!(sides.take(lent + 1, 1).unwrap().len(), 5);
    let small = (0..2 * SLOTS).filter_map(|_| lend(1)).count();
    assert_eq!(small, SLOTS);
    // The peer can write any number, even one that no announcement has.
    sides.client.ends.rings.publish_word(SharedWord::ServerTakenFileCount, u32::MAX);
    assert_eq!(lend(1), None);
}

#[test]
fn peers_that_break_a_rule_are_refused() {
    let octets = sealed(4096, 1);
    let file = descriptor(&octets);
    let (own, zero) = (RingPair::create(RingSizes::at_least(4096, 4096)).unwrap().1, File::open("/dev/zero").unwrap());
    let changeable: OwnedFd = own;
    for (fd, length, why) in [
        (file.as_fd(), 4095, "announced size"),
        (file.as_fd(), 0, "more memory than it may"),
        (file.as_fd(), u64::MAX, "more memory than it may"),
        (file.as_fd(), MIB as u64 + 1, "more memory than it may"),
        (changeable.as_fd(), 12_288, "can still be changed"),
        (zero.as_fd(), 4096, "not memory"),
    ] {
        let sides = sides(MIB);
        sides.announce(1, length, 0, 0, fd);
        let refused = sides.refused(1, 1);
        assert!(refused.contains(why), "{refused}");
    }
    for (number, slot, emptied) in [(2, 0, 0), (0, 0, 0), (1, SLOTS as u32, 0), (1, u32::MAX, u32::MAX)] {
        let sides = sides(MIB);
        sides.announce(number, 4096, slot, emptied, file.as_fd());
        assert!(sides.refused(1, 1).contains("more memory than it may"));
    }
    let sides = sides(MIB);
    assert!(sides.refused(1, 1).contains("not passed"));
    sides.announce(1, 4096, 3, 0, file.as_fd());
    assert!(sides.refused(1, 4097).contains("more bytes"));
    assert!(sides.refused(1, u64::MAX).contains("bytes"));
    assert_eq!(sides.take(1, 4096).unwrap().len(), 4100);
    sides.announce(2, 4096, 3, 1 << 4, file.as_fd());
    assert!(sides.refused(2, 1).contains("more memory than it may"), "the slot is occupied");
    let channel = sides.client.channel.get().unwrap();
    socket::send(channel.as_fd(), &[0; 24], socket::WaitMode::Now).unwrap();
    assert!(sides.refused(2, 1).contains("passed none"));
}

#[test]
fn peer_that_passes_files_without_end_is_refused() {
    let (octets, sides) = (sealed(4096, 1), sides(MIB));
    let file = descriptor(&octets);
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            let channel = sides.client.channel.get().unwrap();
            for number in 1u64.. {
                let bytes = [number.to_le_bytes(), 4096u64.to_le_bytes(), (1u64 << 32).to_le_bytes()].concat();
                let sent = socket::send_with_descriptor(channel.as_fd(), &bytes, file.as_fd(), socket::WaitMode::Block);
                if sent.is_err() {
                    return;
                }
            }
        });
        let refused = loop {
            let error = sides.take(u64::MAX, 1).unwrap_err().to_string();
            // At times the reader is faster than the flood, and finds the channel empty.
            if !error.contains("not passed") {
                break error;
            }
        };
        assert!(refused.contains("without end"), "{refused}");
        let received = sides.server.received.lock();
        assert!(received.bytes() <= MIB, "{} bytes", received.bytes());
        drop(received);
        let _ = socket::shutdown(sides.client.channel.get().unwrap().as_fd(), socket::ShutdownDirection::Both);
        flood.join().unwrap();
    });
}

#[test]
fn nothing_is_lent_to_peers_that_do_not_take_it() {
    let octets = sealed(100_000, 1);
    assert!(sides_of(&own_peer(), UNIT - 1, 0).0.is_none() && sides_of(&own_peer(), 0, UNIT - 1).1.is_none());
    let (client, server) = sides_of(&own_peer(), MIB, 0);
    assert!(server.is_none() && client.unwrap().lend(octets.as_ref()).is_none());
    let (client, server) = sides_of(&own_peer(), 0, MIB);
    assert!(client.is_none() && server.unwrap().lend(octets.as_ref()).is_none());
    let (Some(client), Some(server)) = sides_of(&own_peer(), UNIT, MIB) else { panic!() };
    open_channel(&client, &server);
    assert!(client.lend(octets.as_ref()).is_none() && server.lend(octets.as_ref()).is_none());
    let stranger = Peer::Process { pid: 1, uid: process::effective_user_id() + 1, gid: 0 };
    let (Some(client), Some(server)) = sides_of(&stranger, MIB, MIB) else { panic!() };
    open_channel(&client, &server);
    assert!(client.lend(octets.as_ref()).is_none() && server.lend(octets.as_ref()).is_none());
}

#[test]
fn channel_is_taken_only_with_the_name_of_a_connection_and_once() {
    let channels = Channels::new();
    let sizes = RingSizes::at_least(4096, 4096);
    let (_ours, memory) = RingPair::create(sizes).unwrap();
    let ends = PeerState::new(RingPair::open(memory.as_fd(), sizes).unwrap());
    let server = Lending::of_server(&ends, &own_peer(), &channels, MIB).unwrap();
    let attach = |name, peer: &Peer| {
        let (_near, far) = socket::pair().unwrap();
        channels.attach(name, DescriptorFilterSocket::for_unix_socket(far), peer);
        ends.rings.published_word(SharedWord::IsChannelFound) != 0
    };
    let Side::Server { name, .. } = server.side else { panic!() };
    assert_eq!(
        [SharedWord::ConnectionNameWord0, SharedWord::ConnectionNameWord1, SharedWord::ConnectionNameWord2]
            .map(|word| ends.rings.published_word(word)),
        name
    );
    assert!(!attach([name[0], name[1], name[2] ^ 1], &own_peer()));
    assert!(attach(name, &own_peer()));
    ends.rings.publish_word(SharedWord::IsChannelFound, 0);
    assert!(!attach(name, &own_peer()), "the name is used up");
    let other = Lending::of_server(&ends, &own_peer(), &channels, MIB).unwrap();
    assert_eq!(channels.waiting.lock().len(), 1);
    drop(other);
    assert!(channels.waiting.lock().is_empty());
}

/// A client's connection to a listener of the test, which accepts channels itself.
struct Opener {
    client: Arc<Lending>,
    listener: DescriptorFilterListener,
    _theirs: RingPair,
    path: PathBuf,
}

impl Opener {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("corelane-channel-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let address = Address::Unix(path.clone());
        let listener = socket::listen(&address, &SocketOptions::default(), 16).unwrap();
        let sizes = RingSizes::at_least(4096, 4096);
        let (ours, memory) = RingPair::create(sizes).unwrap();
        let theirs = RingPair::open(memory.as_fd(), sizes).unwrap();
        for (word, value) in [
            (SharedWord::ConnectionNameWord0, 1),
            (SharedWord::IsChannelWanted, 1),
            (SharedWord::ServerLendingLimit, 16),
        ] {
            theirs.publish_word(word, value);
        }
        let options = SocketOptions::default();
        let peer = credentials(socket::connect_unix_without_waiting(&address, &options).unwrap().as_fd());
        let listener = DescriptorFilterListener::for_unix_listener(listener);
        let opener = Opener {
            client: Lending::of_client(&PeerState::new(ours), &peer, path.clone(), MIB).unwrap(),
            listener,
            _theirs: theirs,
            path,
        };
        assert_eq!(opener.headers(), 0);
        opener
    }

    /// Accepts all connections, and returns the number of headers that arrived on them.
    fn headers(&self) -> usize {
        let mut count = 0;
        while let Ok((channel, _)) = self.listener.accept() {
            let mut header = [0; HEADER_BYTES];
            let is_header = socket::recv(channel.as_fd(), &mut header, socket::WaitMode::Now)
                .is_ok_and(|length| length == HEADER_BYTES && parse_channel_header(&header) == Some([1, 0, 0]));
            count += usize::from(is_header);
        }
        count
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

#[test]
fn channel_is_opened_by_one_thread_at_a_time_and_once() {
    let opener = Opener::new("turns");
    let Side::Client { opening, .. } = &opener.client.side else { panic!() };
    let turn = opening.turn(&opener.client.channel).unwrap();
    let octets = sealed(100_000, 7);
    // Another thread opens the channel.
    opener.client.open_if_wanted();
    assert!(opener.client.lend(octets.as_ref()).is_none());
    assert_eq!((opener.headers(), opener.client.channel.get().is_some()), (0, false));
    drop(turn);
    opener.client.open_if_wanted();
    assert_eq!((opener.headers(), opener.client.channel.get().is_some()), (1, true));
    assert!(opening.turn(&opener.client.channel).is_none());
    opener.client.open_if_wanted();
    assert!(opener.client.lend(octets.as_ref()).is_none());
    assert_eq!(opener.headers(), 0);
}

#[test]
fn threads_that_want_the_channel_at_the_same_time_send_one_header() {
    for _ in 0..500 {
        let opener = Opener::new("race");
        let octets = sealed(100_000, 7);
        let start = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                opener.client.lend(octets.as_ref())
            });
            start.wait();
            opener.client.open_if_wanted();
        });
        assert_eq!((opener.headers(), opener.client.channel.get().is_some()), (1, true));
    }
}

#[test]
fn failed_attempts_to_open_the_channel_are_bounded() {
    let opener = Opener::new("bounded");
    let Side::Client { opening, .. } = &opener.client.side else { panic!() };
    std::fs::remove_file(&opener.path).unwrap();
    for attempt in 1..10 {
        opener.client.open_if_wanted();
        assert_eq!(opening.attempts.load(Ordering::Relaxed), attempt.min(MAX_ATTEMPTS));
    }
    assert_eq!((opener.headers(), opener.client.channel.get().is_some()), (0, false));
}
