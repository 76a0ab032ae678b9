//! Test values for every type of interop.idl.

use std::array;

use corelane::{LongDouble, Octets};

use super::options::Characters;
use crate::interop::*;

/// Restrictions of the test values of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleOptions {
    /// Characters of narrow strings.
    pub characters: Characters,
    /// True if unions have no discriminators without a label, which JacORB loses.
    pub only_labelled_discriminators: bool,
}

/// A reproducible source of test values. Numbers are the minimum of their type in round 0, and the
/// maximum in round 1. Sequences and strings are empty in round 0, and have their maximum length in
/// round 1.
#[derive(Debug)]
pub struct Random {
    round: u64,
    state: u64,
    repertoire: SampleOptions,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Random {
    /// Creates the source of a round's test values.
    #[must_use]
    pub fn new(round: u64, repertoire: SampleOptions) -> Self {
        Self { round, state: GOLDEN.wrapping_mul(round + 1), repertoire }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns true if unions have no discriminators without a label.
    #[must_use]
    pub fn only_labelled_discriminators(&self) -> bool {
        self.repertoire.only_labelled_discriminators
    }

    /// Returns a number below `n`, in every round.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn one_of<T: Copy>(&mut self, some: &[T]) -> T {
        let at = self.below(some.len() as u64);
        some[usize::try_from(at).unwrap_or_default()]
    }

    fn count(&mut self, longest: u64) -> u64 {
        match self.round {
            0 => 0,
            1 => longest,
            _ => self.below(longest + 1),
        }
    }

    /// Returns a sequence of at most `longest` values.
    pub fn sequence<T>(&mut self, longest: u64, mut value: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.count(longest)).map(|_| value(self)).collect()
    }

    /// Returns a sequence of at most `longest` octets.
    pub fn octets(&mut self, longest: u64) -> Octets {
        Octets::from(self.sequence(longest, u8::of))
    }

    /// Returns an array.
    pub fn array<T, const N: usize>(&mut self, mut value: impl FnMut(&mut Self) -> T) -> [T; N] {
        array::from_fn(|_| value(self))
    }

    /// Returns an ASCII character, or U+00FF in round 1 with [`Characters::Latin1`].
    pub fn narrow_char(&mut self) -> char {
        match self.round {
            0 => '\0',
            1 if self.repertoire.characters == Characters::Latin1 => '\u{ff}',
            1 => '\u{7f}',
            _ => char::from((self.next() % 128) as u8),
        }
    }

    /// Returns a character of the Basic Multilingual Plane.
    pub fn wide_char(&mut self) -> char {
        const SOME: [char; 8] = ['a', '\u{e9}', '\u{20ac}', '\u{65e5}', '\u{672c}', '\u{fffd}', '\u{7f}', '\u{100}'];
        if self.round == 0 { '\u{1}' } else { self.one_of(&SOME) }
    }

    /// Returns a string of at most `longest` pieces, each of one or two characters.
    pub fn text(&mut self, longest: u64) -> String {
        const ASCII: &[&str] = &["a", "Z", "7", " ", "~", "\u{1}", "\t", "\""];
        const LATIN1: &[&str] = &["a", "\u{e9}", "\u{ff}", "\u{a0}", "\u{df}", "Z"];
        const UNICODE: &[&str] = &["a", "\u{e9}", "\u{20ac}", "\u{65e5}\u{672c}", "\u{1f680}"];
        let pieces = match self.repertoire.characters {
            Characters::Ascii => ASCII,
            Characters::Latin1 | Characters::Latin1Strings => LATIN1,
            Characters::Unicode => UNICODE,
        };
        self.sequence(longest, |random| random.one_of(pieces)).concat()
    }

    /// Returns a `ShortName`.
    pub fn short_name(&mut self) -> String {
        self.sequence(8, |random| char::from(b'a' + (random.next() % 26) as u8)).into_iter().collect()
    }

    /// Returns a wide string of at most `longest` characters.
    pub fn wide_string(&mut self, longest: u64) -> String {
        self.sequence(longest, Self::wide_char).into_iter().collect()
    }

    fn tree(&mut self, depth: u8) -> Tree {
        let value = i32::of(self);
        let longest = if depth == 0 { 0 } else { 3 };
        Tree { value, branches: self.sequence(longest, |random| random.tree(depth - 1)) }
    }
}

/// A type that has test values.
pub trait Sample: Sized {
    /// Returns the next value.
    fn of(random: &mut Random) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => { $(impl Sample for $t {
        fn of(random: &mut Random) -> Self {
            match random.round {
                0 => Self::MIN,
                1 => Self::MAX,
                // All bits of the number are random.
                _ => random.next() as Self,
            }
        }
    })* };
}
integers!(u8 i16 u16 i32 u32 i64 u64);

macro_rules! floats {
    ($($t:ty: $strange:expr;)*) => { $(impl Sample for $t {
        fn of(random: &mut Random) -> Self {
            match random.round {
                0 => Self::MIN,
                1 => Self::MAX,
                2 => -0.0,
                3 => $strange,
                _ => random.next() as i64 as Self / 65536.0,
            }
        }
    })* };
}
floats! {
    f32: f32::INFINITY;
    f64: f64::from_bits(1);
}

impl Sample for LongDouble {
    fn of(random: &mut Random) -> Self {
        Self::from_f64(f64::of(random))
    }
}

impl Sample for bool {
    fn of(random: &mut Random) -> Self {
        random.round == 1 || (random.round > 1 && random.below(2) == 1)
    }
}

impl Sample for Colour {
    fn of(random: &mut Random) -> Self {
        match random.round {
            0 => Self::Red,
            1 => Self::Blue,
            _ => random.one_of(&[Self::Red, Self::Green, Self::Blue]),
        }
    }
}

impl Sample for Point {
    fn of(r: &mut Random) -> Self {
        Self { x: i32::of(r), y: i32::of(r) }
    }
}

impl Sample for Mixed {
    fn of(r: &mut Random) -> Self {
        Self {
            an_octet: u8::of(r),
            a_double: f64::of(r),
            a_boolean: bool::of(r),
            a_short: i16::of(r),
            a_char: r.narrow_char(),
            a_longlong: i64::of(r),
            another_octet: u8::of(r),
            a_float: f32::of(r),
            a_ushort: u16::of(r),
            a_ulong: u32::of(r),
            a_colour: Colour::of(r),
            a_ulonglong: u64::of(r),
            last_octet: u8::of(r),
            a_long: i32::of(r),
        }
    }
}

impl Sample for Gapped {
    fn of(r: &mut Random) -> Self {
        Self {
            first: u8::of(r),
            a_double: f64::of(r),
            a_short: i16::of(r),
            a_longlong: i64::of(r),
            another_octet: u8::of(r),
            a_float: f32::of(r),
            a_ushort: u16::of(r),
            a_ulonglong: u64::of(r),
            last: u8::of(r),
        }
    }
}

impl Sample for Segment {
    fn of(r: &mut Random) -> Self {
        Self { from: Point::of(r), label: Mixed::of(r), to: Point::of(r) }
    }
}

impl Sample for Person {
    fn of(r: &mut Random) -> Self {
        Self {
            full_name: r.text(12),
            age: u16::of(r),
            nicknames: r.sequence(6, |r| r.text(10)),
            code: r.short_name(),
            favourite: Colour::of(r),
        }
    }
}

impl Sample for Keywords {
    fn of(r: &mut Random) -> Self {
        Self { r#type: i32::of(r), r#match: r.text(12), self_: i16::of(r), r#fn: bool::of(r) }
    }
}

impl Sample for Tree {
    fn of(r: &mut Random) -> Self {
        r.tree(4)
    }
}

impl Sample for OnBoolean {
    fn of(r: &mut Random) -> Self {
        if r.below(2) == 1 { Self::Yes(i32::of(r)) } else { Self::No(r.text(9)) }
    }
}

impl Sample for OnChar {
    fn of(r: &mut Random) -> Self {
        match r.below(4) {
            0 => Self::Alpha(i32::of(r)),
            1 => Self::Beta('b', r.text(9)),
            2 => Self::Beta('c', r.text(9)),
            _ => Self::Other(if r.repertoire.only_labelled_discriminators { '\0' } else { 'z' }, u8::of(r)),
        }
    }
}

impl Sample for OnShort {
    fn of(r: &mut Random) -> Self {
        match r.below(if r.repertoire.only_labelled_discriminators { 3 } else { 4 }) {
            0 => Self::Lowest(u8::of(r)),
            1 => Self::Zero(Point::of(r)),
            2 => Self::Highest(f64::of(r)),
            _ => Self::Other(5),
        }
    }
}

impl Sample for OnUShort {
    fn of(r: &mut Random) -> Self {
        match r.below(3) {
            0 => Self::None_(bool::of(r)),
            1 => Self::Many(r.sequence(12, Point::of)),
            _ => Self::Some_(if r.repertoire.only_labelled_discriminators { 1 } else { u16::MAX }, Colour::of(r)),
        }
    }
}

impl Sample for OnLong {
    fn of(r: &mut Random) -> Self {
        match r.below(3) {
            0 => Self::Human(Person::of(r)),
            1 => Self::Numbers(r.array(i32::of)),
            _ => Self::Text(if r.repertoire.only_labelled_discriminators { 0 } else { -i32::MAX }, r.text(9)),
        }
    }
}

impl Sample for OnULong {
    fn of(r: &mut Random) -> Self {
        match r.below(if r.repertoire.only_labelled_discriminators { 2 } else { 3 }) {
            0 => Self::Small(i64::of(r)),
            1 => Self::Words(r.sequence(6, |r| r.text(10))),
            _ => Self::Other(u32::MAX),
        }
    }
}

impl Sample for OnLongLong {
    fn of(r: &mut Random) -> Self {
        match r.below(3) {
            0 => Self::Low(i16::of(r)),
            1 => Self::High(r.octets(300)),
            _ => Self::Other(i64::MIN),
        }
    }
}

impl Sample for OnULongLong {
    fn of(r: &mut Random) -> Self {
        match r.below(3) {
            0 => Self::First(r.narrow_char()),
            1 => Self::Last(r.short_name()),
            _ => Self::Other(u64::MAX),
        }
    }
}

impl Sample for OnColour {
    fn of(r: &mut Random) -> Self {
        match r.below(3) {
            0 => Self::RedPart(OnBoolean::of(r)),
            1 => Self::ColdPart(Colour::Green, Mixed::of(r)),
            _ => Self::ColdPart(Colour::Blue, Mixed::of(r)),
        }
    }
}

impl Sample for Record {
    fn of(r: &mut Random) -> Self {
        Self {
            owner: Person::of(r),
            border: Segment::of(r),
            path: r.sequence(12, Point::of),
            choice: OnLong::of(r),
            weights: r.array(|r| r.array(f64::of)),
            pair: r.array(Person::of),
            grid: r.sequence(5, |r| r.sequence(40, i32::of)),
            growth: Tree::of(r),
            colours: r.sequence(4, OnColour::of),
            digest: r.octets(20),
            cells: r.array(|r| r.array(i32::of)),
        }
    }
}

impl Sample for WideRecord {
    fn of(r: &mut Random) -> Self {
        Self {
            letter: r.wide_char(),
            gap: u8::of(r),
            text: r.wide_string(12),
            code: r.wide_string(6),
            words: r.sequence(4, |r| r.wide_string(8)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: SampleOptions = SampleOptions { characters: Characters::Ascii, only_labelled_discriminators: false };

    #[test]
    fn round_gives_equal_values_each_time() {
        let value = |round| Record::of(&mut Random::new(round, PLAIN));
        assert_eq!(value(4), value(4));
        assert_ne!(value(4), value(5));
    }

    #[test]
    fn first_two_rounds_have_the_extreme_values() {
        assert_eq!((i16::of(&mut Random::new(0, PLAIN)), i16::of(&mut Random::new(1, PLAIN))), (i16::MIN, i16::MAX));
        assert_eq!((Random::new(0, PLAIN).text(5).len(), Random::new(1, PLAIN).text(5).len()), (0, 5));
    }
}
