//! Tests with hostile input: large announced sizes with little data, messages that never end,
//! unbounded nesting.

use std::fs;

use corelane_wire::connection::{Framer, FramingStep, ProtocolFault};
use corelane_wire::giop::{Header, MessageKind};
use corelane_wire::ior::Ior;
use corelane_wire::{Cdr, CdrError, Decoder, Endian, Limits, Octets, Scratch, Version};

fn message(kind: MessageKind, more_fragments: bool, size: u32, body: &[u8]) -> Vec<u8> {
    let header = Header { version: Version::GIOP_1_2, endian: Endian::Big, more_fragments, kind, size };
    [&header.to_bytes(), body].concat()
}

fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4
}

#[test]
fn headers_that_announce_60_mib_take_no_memory() {
    let announced = message(MessageKind::Request, false, 60 << 20, &[0; 100]);
    let before = resident();
    let mut framers: Vec<Framer> = (0..200).map(|_| Framer::new()).collect();
    for framer in &mut framers {
        assert_eq!(framer.next(&announced, &Limits::DEFAULT), Ok(FramingStep::NeedMore((60 << 20) + 12)));
        assert_eq!(framer.partial_message_bytes(), 0);
    }
    assert!(resident() < before + 4096);
}

#[test]
fn number_of_unfinished_requests_is_limited() {
    let limits = Limits::DEFAULT;
    let mut framer = Framer::new();
    let mut fault = None;
    let mut accepted = 0;
    for id in 0..6000u32 {
        let first = message(MessageKind::Request, true, 1004, &[&id.to_be_bytes()[..], &[0; 1000]].concat());
        match framer.next(&first, &limits) {
            Ok(FramingStep::FragmentBuffered(_)) => accepted += 1,
            other => {
                fault = Some(other);
                break;
            }
        }
    }
    assert_eq!(accepted, limits.max_partial_messages);
    assert_eq!(fault, Some(Err(ProtocolFault::TooManyPartialMessages { limit: limits.max_partial_messages })));
    assert!(framer.partial_message_bytes() <= 128 * 1016);
}

#[test]
fn total_size_of_unfinished_requests_is_limited() {
    let limits = Limits { max_partial_message_bytes: 1 << 20, ..Limits::default() };
    let mut framer = Framer::new();
    let body = vec![0; 100_000];
    let mut held = 0;
    let fault = loop {
        let mut body = body.clone();
        body[..4].copy_from_slice(&u32::to_be_bytes(held));
        match framer.next(&message(MessageKind::Reply, true, 100_000, &body), &limits) {
            Ok(FramingStep::FragmentBuffered(_)) => held += 1,
            other => break other,
        }
    };
    assert!(matches!(fault, Err(ProtocolFault::PartialMessagesTooLarge { .. })) && held == 10);
    assert!(framer.partial_message_bytes() <= (1 << 20) + 12);
}

#[test]
fn number_of_empty_fragments_is_limited() {
    let limits = Limits { max_fragments: 1000, ..Limits::default() };
    let mut framer = Framer::new();
    let first = message(MessageKind::Request, true, 4, &[0, 0, 0, 1]);
    framer.next(&first, &limits).unwrap();
    let more = message(MessageKind::Fragment, true, 4, &[0, 0, 0, 1]);
    let fault = (0..2000).find_map(|_| framer.next(&more, &limits).err());
    assert_eq!(fault, Some(ProtocolFault::TooManyFragments { limit: 1000 }));
}

#[test]
fn counts_of_four_thousand_million_take_no_memory() {
    let octets = [0xff; 4096];
    let before = resident();
    let d = || Decoder::new(&octets, Endian::Big);
    assert_eq!(Vec::<u64>::decode(&mut d()), Err(CdrError::CountExceedsInput));
    assert_eq!(Vec::<String>::decode(&mut d()), Err(CdrError::CountExceedsInput));
    assert_eq!(Octets::decode(&mut d()), Err(CdrError::CountExceedsInput));
    assert_eq!(String::decode(&mut d()), Err(CdrError::LimitExceeded));
    assert_eq!(Ior::decode(&mut d()), Err(CdrError::LimitExceeded));
    assert!(d().read_slice::<u64>(1 << 40).is_err() && d().read_vec::<u8>(usize::MAX).is_err());
    let scratch = Scratch::new();
    let mut with = d().with_scratch(&scratch);
    assert!(with.read_slice_with(4000, |d| Ok([d.read_u64()?; 100])).is_err());
    assert!(resident() < before + 16384);
}

#[test]
fn count_within_the_message_does_not_size_a_vector_of_large_elements() {
    // An element has a minimum encoded size of one byte, but takes 4 KiB of memory. So the 4096
    // announced elements would take 16 MiB.
    #[derive(Debug)]
    struct Large(#[expect(dead_code, reason = "gives the type its size")] [u8; 4096]);
    impl Cdr for Large {
        const MIN_SIZE: usize = 1;
        fn encode(&self, _: &mut corelane_wire::Encoder<'_>) -> Result<(), CdrError> {
            Ok(())
        }
        fn decode(d: &mut Decoder<'_>) -> Result<Large, CdrError> {
            d.read_u32().map(|first| Large([u8::try_from(first & 0xff).unwrap(); 4096]))
        }
    }
    let mut octets = vec![0, 0, 0x10, 0];
    octets.resize(5000, 0);
    assert_eq!(Vec::<Large>::decode(&mut Decoder::new(&octets, Endian::Big)).unwrap_err(), CdrError::Truncated);
}

#[test]
fn memory_of_decoded_elements_is_limited() {
    #[derive(Clone, Copy, Debug)]
    struct Large(#[expect(dead_code, reason = "gives the type its size")] [u8; 4096]);
    impl Cdr for Large {
        const MIN_SIZE: usize = 1;
        fn encode(&self, _: &mut corelane_wire::Encoder<'_>) -> Result<(), CdrError> {
            Ok(())
        }
        fn decode(d: &mut Decoder<'_>) -> Result<Large, CdrError> {
            d.read_u8().map(|first| Large([first; 4096]))
        }
    }
    let one = [&[0, 0, 0, 100][..], &[0; 100]].concat();
    let mut octets = vec![0, 0, 0, 200];
    (0..200).for_each(|_| octets.extend(&one));
    let limits = Limits { max_decoded_bytes: 100 * 100 * 4096, ..Limits::default() };
    let scratch = Scratch::new();
    let decoder = |octets| Decoder::new(octets, Endian::Big).with_limits(&limits).with_scratch(&scratch);
    assert_eq!(Vec::<Vec<Large>>::decode(&mut decoder(&octets)).unwrap_err(), CdrError::LimitExceeded);
    let fewer = [&[0, 0, 0, 99][..], &octets[4..]].concat();
    assert_eq!(Vec::<Vec<Large>>::decode(&mut decoder(&fewer)).unwrap().len(), 99);
    let many = vec![0; 20_000];
    assert_eq!(decoder(&many).read_slice_with(20_000, Large::decode).unwrap_err(), CdrError::LimitExceeded);
    assert!(scratch.allocated_bytes() < 1 << 20);
}

#[test]
fn nesting_of_encapsulations_is_limited() {
    fn deep(d: &mut Decoder<'_>) -> Result<(), CdrError> {
        d.read_nested(|d| {
            let mut inner = d.read_encapsulation()?;
            deep(&mut inner)
        })
    }
    let mut octets = vec![0; 8];
    for _ in 0..1000 {
        let mut outer = vec![0, 0, 0, 0];
        outer.extend(u32::try_from(octets.len()).unwrap().to_be_bytes());
        outer.append(&mut octets);
        octets = outer;
    }
    assert_eq!(deep(&mut Decoder::new(&octets, Endian::Big).at_position(4)), Err(CdrError::NestingTooDeep));
}
