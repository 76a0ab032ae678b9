//! Checks of the echo operations: the result is the former `a`, inout `b` becomes `a`, and out `c`
//! becomes the former `b`.

use std::fmt::Debug;

use corelane::{LongDouble, Octets, SystemException};

use super::{Client, differs};
use crate::interop::*;
use crate::suite::values::{Random, Sample};

type Echoed<T> = Result<(T, T, T), SystemException>;

fn words(owned: &[String]) -> Vec<&str> {
    owned.iter().map(String::as_str).collect()
}

impl Client {
    fn echo<T: PartialEq + Debug>(
        &self,
        name: &str,
        value: impl Fn(&mut Random) -> T,
        call: impl Fn(&T, &T) -> Echoed<T>,
    ) {
        self.report.check(name, || {
            for round in 0..self.options.rounds {
                let (a, b) = (value(&mut self.random(round)), value(&mut self.random(round + 1)));
                let (result, inout, out) = call(&a, &b)?;
                let trouble =
                    differs("result", &a, &result) + &differs("inout", &a, &inout) + &differs("out", &b, &out);
                if !trouble.is_empty() {
                    return Ok(format!("round {round} {trouble}"));
                }
            }
            Ok(String::new())
        });
    }

    pub(super) fn echoes(&self) {
        self.basics();
        self.sequences_of_basics();
        self.sequences_of_others();
        self.constructed();
        self.arrays();
        if self.options.wide_characters {
            self.wide();
        }
    }
}

macro_rules! group {
    ($group:ident, by $how:ident: $($operation:ident($value:expr);)*) => { group!($group: $how($($operation, $value;)*)); };
    ($group:ident: value($($operation:ident, $value:expr;)*)) => {
        impl Client {
            fn $group(&self) {
                $(self.echo(stringify!($operation), $value, |a, b| self.suite.$operation(*a, *b));)*
            }
        }
    };
    ($group:ident: reference($($operation:ident, $value:expr;)*)) => {
        impl Client {
            fn $group(&self) {
                $(self.echo(stringify!($operation), $value, |a, b| self.suite.$operation(a, b));)*
            }
        }
    };
}

group! { numbers, by value:
    echo_octet(u8::of);
    echo_boolean(bool::of);
    echo_char(Random::narrow_char);
    echo_short(i16::of);
    echo_ushort(u16::of);
    echo_long(i32::of);
    echo_ulong(u32::of);
    echo_longlong(i64::of);
    echo_ulonglong(u64::of);
    echo_float(f32::of);
    echo_double(f64::of);
    echo_longdouble(LongDouble::of);
    echo_colour(Colour::of);
    echo_customer_id(CustomerId::of);
}

group! { strings, by reference:
    echo_string(|r: &mut Random| r.text(40));
    echo_short_name(Random::short_name);
}

group! { sequences_of_basics, by reference:
    echo_octet_seq(|r: &mut Random| r.octets(300));
    echo_boolean_seq(|r: &mut Random| r.sequence(9, bool::of));
    echo_char_seq(|r: &mut Random| r.sequence(9, Random::narrow_char));
    echo_short_seq(|r: &mut Random| r.sequence(9, i16::of));
    echo_ushort_seq(|r: &mut Random| r.sequence(9, u16::of));
    echo_long_seq(|r: &mut Random| r.sequence(40, i32::of));
    echo_ulong_seq(|r: &mut Random| r.sequence(9, u32::of));
    echo_longlong_seq(|r: &mut Random| r.sequence(9, i64::of));
    echo_ulonglong_seq(|r: &mut Random| r.sequence(9, u64::of));
    echo_float_seq(|r: &mut Random| r.sequence(9, f32::of));
    echo_double_seq(|r: &mut Random| r.sequence(9, f64::of));
    echo_colour_seq(|r: &mut Random| r.sequence(9, Colour::of));
    echo_customer_list(|r: &mut Random| r.sequence(9, CustomerId::of));
    echo_bounded_long_seq(|r: &mut Random| r.sequence(4, i32::of));
    echo_bounded_octet_seq(|r: &mut Random| r.octets(16));
}

group! { sequences_of_values, by reference:
    echo_long_seq_seq(|r: &mut Random| r.sequence(5, |r| r.sequence(40, i32::of)));
    echo_bounded_nested_seq(|r: &mut Random| r.sequence(2, |r| r.sequence(3, |r| r.text(10))));
    echo_point_seq(|r: &mut Random| r.sequence(12, Point::of));
    echo_mixed_seq(|r: &mut Random| r.sequence(5, Mixed::of));
    echo_gapped_seq(|r: &mut Random| r.sequence(400, Gapped::of));
    echo_person_seq(|r: &mut Random| r.sequence(4, Person::of));
    echo_matrix_seq(|r: &mut Random| r.sequence(3, |r| r.array(|r| r.array(f64::of))));
    echo_on_colour_seq(|r: &mut Random| r.sequence(4, OnColour::of));
}

group! { structures, by reference:
    echo_point(Point::of);
    echo_mixed(Mixed::of);
    echo_gapped(Gapped::of);
    echo_segment(Segment::of);
    echo_person(Person::of);
    echo_keywords(Keywords::of);
    echo_tree(Tree::of);
    echo_record(Record::of);
}

group! { unions, by reference:
    echo_on_boolean(OnBoolean::of);
    echo_on_char(OnChar::of);
    echo_on_short(OnShort::of);
    echo_on_ushort(OnUShort::of);
    echo_on_long(OnLong::of);
    echo_on_ulong(OnULong::of);
    echo_on_longlong(OnLongLong::of);
    echo_on_ulonglong(OnULongLong::of);
    echo_on_colour(OnColour::of);
}

group! { arrays, by reference:
    echo_octet_array(|r: &mut Random| r.array(u8::of));
    echo_long_array(|r: &mut Random| r.array(i32::of));
    echo_matrix(|r: &mut Random| r.array(|r| r.array(f64::of)));
    echo_cube(|r: &mut Random| r.array(|r| r.array(|r| r.array(i16::of))));
    echo_string_array(|r: &mut Random| r.array(|r| r.text(12)));
    echo_point_array(|r: &mut Random| r.array(Point::of));
    echo_person_array(|r: &mut Random| r.array(Person::of));
    echo_long_seq_array(|r: &mut Random| r.array(|r| r.sequence(40, i32::of)));
    echo_long_array_rows(|r: &mut Random| r.array(|r| r.array(i32::of)));
    echo_large_array(|r: &mut Random| LargeArray::from(r.array(u8::of)));
}

group! { wide_values, by reference:
    echo_wstring(|r: &mut Random| r.wide_string(40));
    echo_short_wide_name(|r: &mut Random| r.wide_string(6));
    echo_wchar_seq(|r: &mut Random| r.sequence(9, Random::wide_char));
    echo_wchar_array(|r: &mut Random| r.array(Random::wide_char));
    echo_wide_record(WideRecord::of);
}

impl Client {
    fn basics(&self) {
        self.numbers();
        self.strings();
    }

    fn constructed(&self) {
        self.structures();
        self.unions();
    }

    fn sequences_of_others(&self) {
        let s = &self.suite;
        let strings = |r: &mut Random| r.sequence(6, |r| r.text(10));
        self.echo("echo_string_seq", strings, |a, b| s.echo_string_seq(&words(a), &words(b)));
        let names = |r: &mut Random| r.sequence(6, Random::short_name);
        self.echo("echo_short_name_seq", names, |a, b| s.echo_short_name_seq(&words(a), &words(b)));
        let bounded = |r: &mut Random| r.sequence(3, |r| r.text(10));
        self.echo("echo_bounded_string_seq", bounded, |a, b| s.echo_bounded_string_seq(&words(a), &words(b)));
        self.sequences_of_values();
    }

    fn wide(&self) {
        let s = &self.suite;
        self.echo("echo_wchar", Random::wide_char, |a, b| s.echo_wchar(*a, *b));
        let strings = |r: &mut Random| r.sequence(4, |r| r.wide_string(8));
        self.echo("echo_wstring_seq", strings, |a, b| s.echo_wstring_seq(&words(a), &words(b)));
        self.wide_values();
    }

    pub(super) fn big_messages(&self, size: usize) {
        self.report.check(&format!("big octets {size}"), || {
            let octets = |count: usize, factor: usize| -> Octets {
                (0..count).map(|i| (i * factor + i / 256) as u8).collect::<Vec<u8>>().into()
            };
            let (a, b) = (octets(size, 7), octets(size / 2, 5));
            let (result, inout, out) = self.suite.echo_octet_seq(&a, &b)?;
            Ok(if result == a && inout == a && out == b { String::new() } else { "octets differ".into() })
        });
        self.report.check(&format!("big persons {size}"), || {
            let random = &mut self.random(2);
            let a: PersonSeq = (0..size / 100).map(|_| Person::of(random)).collect();
            let (result, inout, out) = self.suite.echo_person_seq(&a, &[])?;
            let out = if out.is_empty() { "" } else { "out is not empty" };
            Ok(differs("result", &a, &result) + &differs("inout", &a, &inout) + out)
        });
    }
}
