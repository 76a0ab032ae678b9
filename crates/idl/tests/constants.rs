//! Tests that compare constant expressions with independently computed values (CORBA 3.0.3,
//! 3.10.2).

use corelane_idl::NoFiles;
use corelane_idl::compile::{Compilation, CompileOptions};
use corelane_idl::model::{ConstantValue as V, DefinitionKind, Type};
use std::path::Path;

fn value(text: &str) -> Result<V, String> {
    let compilation = Compilation::from_text(Path::new("a.idl"), text.into(), &CompileOptions::default(), &NoFiles);
    if let Some(first) = compilation.diagnostics.list().first() {
        return Err(first.message.clone());
    }
    let (model, symbols) = (&compilation.model, &compilation.symbols);
    let wanted = model.definition_ids().filter(|id| symbols.text(model.get(*id).name) == "X").last().unwrap();
    match &model.get(wanted).kind {
        DefinitionKind::Constant(_, value) => Ok(value.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn integer_constants_have_their_values() {
    for (ty, expression, expected) in [
        ("long", "7 / 2", 3),
        ("long", "-7 / 2", -3),
        ("long", "7 / -2", -3),
        ("long", "7 % -3", 1),
        ("long", "-7 % 3", -1),
        ("long", "-8 >> 1", -4),
        ("long", "-1 << 4", -16),
        ("long", "1 << 30", 1 << 30),
        ("long", "~0", -1),
        ("long", "~5", -6),
        ("unsigned long", "~0", 0xffff_ffff),
        ("unsigned short", "~5", 0xfffa),
        ("octet", "~0x0f", 0xf0),
        ("unsigned long long", "~0", 0xffff_ffff_ffff_ffff),
        ("long", "1 | 6 ^ 3 & 5 << 1", 5),
        ("long", "2 + 3 * 4 - 6 / 4", 13),
        ("long", "(2 + 3) * (4 - 6) / 4", -2),
        ("long", "- - 3 + + 4", 7),
        ("long", "0x7fffffff", 0x7fff_ffff),
        ("long", "-2147483648", -0x8000_0000),
        ("long long", "-9223372036854775807 - 1", i128::from(i64::MIN)),
        ("unsigned long long", "18446744073709551615", i128::from(u64::MAX)),
        ("long", "4294967296 - 4294967295", 1),
        ("short", "040000 - 1", 16_383),
    ] {
        assert_eq!(value(&format!("const {ty} X = {expression};")), Ok(V::Integer(expected)), "{ty} {expression}");
    }
    for (ty, expression, expected) in [
        ("long", "2147483648", "2147483648 does not fit `long`"),
        ("short", "-32769", "-32769 does not fit `short`"),
        ("octet", "256", "256 does not fit `octet`"),
        ("unsigned long", "-1", "-1 does not fit `unsigned long`"),
        ("unsigned long long", "18446744073709551615 + 1", "the value needs more than 64 bits"),
        ("long", "1 / 0", "division by zero"),
        ("long", "1 % (2 - 2)", "division by zero"),
        ("long", "1 << 64", "a shift is by 0 to 63 bits, not 64"),
        ("long", "1 >> -1", "a shift is by 0 to 63 bits, not -1"),
        ("long", "1.5", "an integer was expected, a floating-point number was found"),
    ] {
        assert_eq!(value(&format!("const {ty} X = {expression};")), Err(expected.to_owned()), "{ty} {expression}");
    }
}

#[test]
fn constants_of_other_scopes_are_found() {
    for (text, expected) in [
        ("module M { const long A = 3; }; const long X = M::A + ::M::A;", 6),
        ("const long A = 1; module M { const long A = 2; const long X = A * 10 + ::A; };", 21),
        ("interface I { const long A = 4; }; interface J : I { const long X = A; };", 4),
        ("interface I { const long A = 4; }; interface J : I {}; const long X = J::A;", 4),
        ("const unsigned short A = 65535; const long X = A + 1;", 65_536),
        ("typedef short T; const T A = 7; const long X = A;", 7),
    ] {
        assert_eq!(value(text), Ok(V::Integer(expected)), "{text}");
    }
}

#[test]
fn floating_point_constants_have_their_values() {
    for (ty, expression, expected) in [
        ("double", "1.0 / 3.0", 1.0 / 3.0),
        ("double", "0.1 + 0.2", 0.1 + 0.2),
        ("double", "-1e308", -1e308),
        ("double", "4.9e-324", 5e-324),
        ("float", "0.1", f64::from(0.1_f32)),
        ("float", "3.40282347e+38", f64::from(f32::MAX)),
        ("float", "1.0 / 3.0", f64::from(1.0_f32 / 3.0)),
    ] {
        assert_eq!(value(&format!("const {ty} X = {expression};")), Ok(V::Float(expected)), "{ty} {expression}");
    }
    assert_eq!(value("const float A = 0.1; const double X = A;"), Ok(V::Float(f64::from(0.1_f32))));
    assert_eq!(value("const long double A = 0.1; const double X = A;"), Ok(V::Float(0.1)));
    for (ty, expression, expected) in [
        ("float", "3.5e38", "the value does not fit `float`"),
        ("double", "1e400", "the value does not fit `double`"),
        ("double", "1.0 / 1e400", "the value does not fit `double`"),
        ("double", "1e300 * 1e300 / 1e300", "the value does not fit `double`"),
        ("long double", "1e4000 * 1e4000", "the value does not fit `long double`"),
        ("double", "1.0 / 0.0", "division by zero"),
        ("long double", "1.0 / (0.1 - 0.1)", "division by zero"),
        ("double", "1.0 % 2.0", "this operator is not defined for a floating-point number"),
        ("long double", "1.0 | 2.0", "this operator is not defined for a floating-point number"),
        ("double", "1", "a floating-point number was expected, an integer was found"),
    ] {
        assert_eq!(value(&format!("const {ty} X = {expression};")), Err(expected.to_owned()), "{ty} {expression}");
    }
}

#[test]
fn long_doubles_have_the_precision_of_binary128() {
    let bits = |text: &str| match value(text) {
        Ok(V::LongDouble(number)) => number.bits(),
        other => panic!("{text}: {other:?}"),
    };
    // Expected values come from exact arithmetic with fractions.
    for (expression, expected) in [
        ("0.1", 0x3ffb_9999_9999_9999_9999_9999_9999_999a),
        ("3.14159265358979323846264338327950288", 0x4000_921f_b544_42d1_8469_898c_c517_01b8),
        ("1.0 / 3.0", 0x3ffd_5555_5555_5555_5555_5555_5555_5555),
        ("-(2.0 - 1.0) * 0.5", 0xbffe_u128 << 112),
        ("3.3621031431120935062626778173217526e-4932", 1 << 112),
        ("6e-4966", 1),
        ("1e4932", 0x7ffe_ae59_6552_b8fd_ed99_d037_e3d0_4b75),
    ] {
        assert_eq!(bits(&format!("const long double X = {expression};")), expected, "{expression}");
    }
    let pi = "const long double PI = 3.14159265358979323846264338327950288; const long double X = PI * 2.0;";
    assert_eq!(bits(pi), 0x4001_921f_b544_42d1_8469_898c_c517_01b8);
    let double = "const double A = 0.1; const long double X = A;";
    assert_eq!(bits(double), 0x3ffb_9999_9999_9999_a000_0000_0000_0000);
}

#[test]
fn fixed_point_constants_have_their_values() {
    for (expression, digits, scale) in [
        ("1.10d", 11, 1),
        ("1.10d * 2.0d", 22, 1),
        ("0.1d - 0.1d", 0, 0),
        ("1d / 8d", 125, 3),
        ("-1.5d", -15, 1),
        ("123.45d + 0.05d", 1235, 1),
        (
            "1.234567890123456789012345678901d * 1.000000000000000000000000000001d",
            1_234_567_890_123_456_789_012_345_678_902,
            30,
        ),
        ("2d / 3d", 6_666_666_666_666_666_666_666_666_666_666, 31),
        ("1d / 300d", 33_333_333_333_333_333_333_333_333_333, 31),
    ] {
        let found = value(&format!("const fixed X = {expression};"));
        let Ok(V::Fixed(found_digits, found_scale)) = found else { panic!("{expression}: {found:?}") };
        let (mut found_digits, mut found_scale) = (found_digits, found_scale);
        while found_scale > 0 && found_digits % 10 == 0 {
            (found_digits, found_scale) = (found_digits / 10, found_scale - 1);
        }
        assert_eq!((found_digits, found_scale), (digits, scale), "{expression}");
    }
}

#[test]
fn two_angle_brackets_close_types_or_shift() {
    for (text, bounds) in [
        ("typedef sequence<long, 16>>1> T;", "[8]"),
        ("typedef sequence<long, (16>>2)> T;", "[4]"),
        ("typedef sequence<sequence<long, 16>> T;", "[16]"),
        ("typedef sequence<sequence<long, 16>, 16>>3> T;", "[2, 16]"),
        ("typedef sequence<string<3>> T;", "[3]"),
        ("typedef string<32>>1> T;", "[16]"),
        ("typedef sequence<sequence<@max(16>>1) long>> T;", "[]"),
    ] {
        let compilation = Compilation::from_text(Path::new("a.idl"), text.into(), &CompileOptions::default(), &NoFiles);
        assert!(compilation.is_accepted(), "{text}");
        let model = &compilation.model;
        let id = model.definition_ids().last().unwrap();
        let DefinitionKind::Typedef(ty) = &model.get(id).kind else { panic!("{text}") };
        assert_eq!(format!("{:?}", bounds_of(ty)), bounds, "{text}");
    }
}

fn bounds_of(ty: &Type) -> Vec<u32> {
    match ty {
        Type::Sequence(element, bound) => bound.iter().copied().chain(bounds_of(element)).collect(),
        Type::String(_, bound) => bound.iter().copied().collect(),
        _ => Vec::new(),
    }
}
