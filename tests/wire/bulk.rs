//! Sequences of structures of numbers have the same octets, whether written in bulk or element by
//! element.

use corelane::mapping::Scratch;
use corelane::{Cdr, CdrError, Decoder, Encoder};
use corelane_wire::Endian;

corelane::include_idl!("plain");
use plain::{Colour, Nested, inner::Exact};

fn exact(n: u8) -> Exact {
    let a_colour = [Colour::Red, Colour::MEMBERS, Colour::Blue][usize::from(n % 3)];
    Exact { o: n, d: f64::from(n) / 3.0, b: n % 2 == 1, s: -i16::from(n), a_colour, p: [n, n + 1, n + 2] }
}

fn nested(n: u8) -> Nested {
    Nested { self_: n, pair: [exact(n), exact(n + 1)], r#type: u16::from(n) * 257, octets: -i64::from(n) }
}

fn encoder(endian: Endian, start: u8) -> Encoder<'static> {
    let mut e = Encoder::new();
    e.set_endian(endian);
    (0..start).for_each(|octet| e.write_u8(octet));
    e
}

#[test]
fn bulk_and_single_elements_have_the_same_octets() {
    let values: Vec<Nested> = (0..20).map(nested).collect();
    for endian in [Endian::Big, Endian::Little] {
        for start in 0..8 {
            let (mut bulk, mut single) = (encoder(endian, start), encoder(endian, start));
            values.encode(&mut bulk).unwrap();
            single.write_len(values.len()).unwrap();
            values.iter().try_for_each(|value| value.encode(&mut single)).unwrap();
            let octets = single.into_reusable_buffer();
            assert_eq!(bulk.into_reusable_buffer(), octets);
            let scratch = Scratch::new();
            let decoder = || Decoder::new(&octets, endian).at_position(usize::from(start)).with_scratch(&scratch);
            assert_eq!(Vec::<Nested>::decode(&mut decoder()).unwrap(), values);
            let mut d = decoder();
            let len = d.read_len(Nested::MIN_SIZE).unwrap();
            assert_eq!(d.read_bulk::<Nested>(len).unwrap(), values);
            assert_eq!(d.remaining_len(), 0);
        }
    }
}

#[test]
fn invalid_enumerators_are_refused_in_every_element() {
    let mut e = encoder(Endian::Big, 0);
    (0..4).map(exact).collect::<Vec<Exact>>().encode(&mut e).unwrap();
    let octets = e.into_reusable_buffer();
    let scratch = Scratch::new();
    let found: Vec<usize> =
        (0..octets.len() - 3).step_by(4).filter(|at| octets[at + 3] < 3 && is_colour(&octets, *at)).collect();
    assert_eq!(found.len(), 4);
    for at in found {
        let mut wrong = octets.clone();
        wrong[at + 3] = 3;
        let decoder = || Decoder::new(&wrong, Endian::Big).with_scratch(&scratch);
        assert_eq!(Vec::<Exact>::decode(&mut decoder()), Err(CdrError::EnumOutOfRange));
        let mut d = decoder();
        let len = d.read_len(Exact::MIN_SIZE).unwrap();
        assert_eq!(d.read_bulk::<Exact>(len), Err(CdrError::EnumOutOfRange));
    }
}

fn is_colour(octets: &[u8], at: usize) -> bool {
    let mut other = octets.to_vec();
    other[at..at + 4].copy_from_slice(&[0, 0, 0, (octets[at + 3] + 1) % 3]);
    let read = |octets: &[u8]| Vec::<Exact>::decode(&mut Decoder::new(octets, Endian::Big)).unwrap_or_default();
    let (before, after) = (read(octets), read(&other));
    before.len() == after.len() && before.iter().zip(&after).any(|(a, b)| a.a_colour != b.a_colour)
}

#[test]
fn elements_in_fragments_of_giop_1_1_are_read_one_by_one() {
    // The second fragment begins with the second element.
    let mut message = vec![0; 12];
    let mut e = encoder(Endian::Big, 12);
    e.write_len(2).unwrap();
    exact(1).encode(&mut e).unwrap();
    message.extend(&e.into_reusable_buffer()[12..]);
    let cut = message.len();
    let mut e = encoder(Endian::Big, 12);
    exact(2).encode(&mut e).unwrap();
    message.extend(&e.into_reusable_buffer()[12..]);
    let (breaks, scratch) = ([cut], Scratch::new());
    let decoder =
        || Decoder::new(&message, Endian::Big).at_position(12).with_fragment_starts(&breaks).with_scratch(&scratch);
    assert_eq!(Vec::<Exact>::decode(&mut decoder()).unwrap(), [exact(1), exact(2)]);
    let mut d = decoder();
    let len = d.read_len(Exact::MIN_SIZE).unwrap();
    assert_eq!(d.read_bulk::<Exact>(len).unwrap(), [exact(1), exact(2)]);
}
