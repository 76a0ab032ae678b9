//! Checks of `any`, of TypeCodes, and of values that the server inserts and extracts.

use std::fmt::Debug;

use corelane::{Any, Context, LongDouble, TypeCode, Typed};

use super::{Client, differs};
use crate::interop::*;
use crate::suite::values::{Random, Sample};

impl Client {
    fn in_any<T: Typed + PartialEq + Debug>(
        &self,
        name: &str,
        type_code: Option<&'static corelane::mapping::StaticTypeCode>,
        value: impl Fn(&mut Random) -> T,
    ) {
        let type_code = type_code.map_or_else(T::type_code, TypeCode::from_description);
        self.report.check(&format!("any({name})"), || {
            for round in 0..self.options.rounds {
                let value = value(&mut self.random(round));
                let any = Any::with_type(&type_code, &value)?;
                let nested = Any::new(&vec![Any::new(&any)?, any.clone(), Any::new(&1u8)?])?;
                let (result, inout, out) = self.suite.echo_any(&any, &nested)?;
                let inner: Vec<Any> = out.extract()?;
                let trouble = differs("result", &value, &result.extract::<T>()?)
                    + &differs("inout", &any, &inout)
                    + &differs("type", &type_code, result.type_code())
                    + &differs("out", &nested, &out)
                    + &differs("inner", &value, &inner[0].extract::<Any>()?.extract::<T>()?);
                if !trouble.is_empty() {
                    return Ok(format!("round {round} {trouble}"));
                }
            }
            Ok(String::new())
        });
    }

    pub(super) fn dynamics(&self) {
        self.basics_in_any();
        self.sequences_in_any();
        self.arrays_in_any();
        self.constructed_in_any();
        if self.options.wide_characters {
            self.in_any("wstring", Some(corelane::mapping::description::WSTRING), |r| r.wide_string(40));
            self.in_any("ShortWideName", Some(&SHORT_WIDE_NAME_TYPE), |r| r.wide_string(6));
            self.in_any("wchar", Some(corelane::mapping::description::WCHAR), Random::wide_char);
            self.in_any("WCharSeq", Some(&W_CHAR_SEQ_TYPE), |r| r.sequence(9, Random::wide_char));
            self.in_any("WStringSeq", Some(&W_STRING_SEQ_TYPE), |r| r.sequence(4, |r| r.wide_string(8)));
            self.in_any("WCharArray", Some(&W_CHAR_ARRAY_TYPE), |r| -> WCharArray { r.array(Random::wide_char) });
            self.in_any("WideRecord", None, WideRecord::of);
        }
        self.references_in_any();
        self.report.check("echo_type_code", || {
            for (a, b) in ALL_TYPES.iter().zip(ALL_TYPES.iter().cycle().skip(1)) {
                let (a, b) = (TypeCode::from_description(a), TypeCode::from_description(b));
                let (result, inout, out) = self.suite.echo_type_code(&a, &b)?;
                let trouble =
                    differs("result", &a, &result) + &differs("inout", &a, &inout) + &differs("out", &b, &out);
                if !trouble.is_empty() {
                    return Ok(trouble);
                }
            }
            Ok(String::new())
        });
        self.packed();
        self.properties();
    }

    fn properties(&self) {
        self.report.check("properties", || {
            let all = [("user", "ann"), ("site.name", "north"), ("site.zone", ""), ("sitemap", "no"), ("other", "no")];
            let mut context = Context::new();
            for (name, value) in all {
                context = context.with(name, value)?;
            }
            let told = self.suite.with_context(&context).properties("text")?;
            let expected = ["text", "site.name", "north", "site.zone", "", "user", "ann"].map(str::to_owned);
            Ok(differs("properties", &expected.to_vec(), &told)
                + &differs("without any", &vec!["text".to_owned()], &self.suite.properties("text")?))
        });
    }

    fn basics_in_any(&self) {
        self.in_any("octet", None, u8::of);
        self.in_any("boolean", None, bool::of);
        self.in_any("char", None, Random::narrow_char);
        self.in_any("short", None, i16::of);
        self.in_any("unsigned short", None, u16::of);
        self.in_any("long", None, i32::of);
        self.in_any("unsigned long", None, u32::of);
        self.in_any("long long", None, i64::of);
        self.in_any("unsigned long long", None, u64::of);
        self.in_any("float", None, f32::of);
        self.in_any("double", None, f64::of);
        self.in_any("longdouble", None, LongDouble::of);
        self.in_any("string", None, |r| r.text(40));
        self.in_any("ShortName", Some(&SHORT_NAME_TYPE), Random::short_name);
        self.in_any("Colour", None, Colour::of);
        self.in_any("CustomerId", Some(&CUSTOMER_ID_TYPE), CustomerId::of);
    }

    fn sequences_in_any(&self) {
        self.in_any("OctetSeq", Some(&OCTET_SEQ_TYPE), |r| r.octets(300));
        self.in_any("BooleanSeq", Some(&BOOLEAN_SEQ_TYPE), |r| r.sequence(9, bool::of));
        self.in_any("CharSeq", Some(&CHAR_SEQ_TYPE), |r| r.sequence(9, Random::narrow_char));
        self.in_any("ShortSeq", Some(&SHORT_SEQ_TYPE), |r| r.sequence(9, i16::of));
        self.in_any("UShortSeq", Some(&U_SHORT_SEQ_TYPE), |r| r.sequence(9, u16::of));
        self.in_any("LongSeq", Some(&LONG_SEQ_TYPE), |r| r.sequence(40, i32::of));
        self.in_any("ULongSeq", Some(&U_LONG_SEQ_TYPE), |r| r.sequence(9, u32::of));
        self.in_any("LongLongSeq", Some(&LONG_LONG_SEQ_TYPE), |r| r.sequence(9, i64::of));
        self.in_any("ULongLongSeq", Some(&U_LONG_LONG_SEQ_TYPE), |r| r.sequence(9, u64::of));
        self.in_any("FloatSeq", Some(&FLOAT_SEQ_TYPE), |r| r.sequence(9, f32::of));
        self.in_any("DoubleSeq", Some(&DOUBLE_SEQ_TYPE), |r| r.sequence(9, f64::of));
        self.in_any("StringSeq", Some(&STRING_SEQ_TYPE), |r| r.sequence(6, |r| r.text(10)));
        self.in_any("ShortNameSeq", Some(&SHORT_NAME_SEQ_TYPE), |r| r.sequence(6, Random::short_name));
        self.in_any("ColourSeq", Some(&COLOUR_SEQ_TYPE), |r| r.sequence(9, Colour::of));
        self.in_any("CustomerList", Some(&CUSTOMER_LIST_TYPE), |r| r.sequence(9, CustomerId::of));
        self.in_any("BoundedLongSeq", Some(&BOUNDED_LONG_SEQ_TYPE), |r| r.sequence(4, i32::of));
        self.in_any("BoundedOctetSeq", Some(&BOUNDED_OCTET_SEQ_TYPE), |r| r.octets(16));
        self.in_any("BoundedStringSeq", Some(&BOUNDED_STRING_SEQ_TYPE), |r| r.sequence(3, |r| r.text(10)));
        self.in_any("BoundedNestedSeq", Some(&BOUNDED_NESTED_SEQ_TYPE), |r| {
            r.sequence(2, |r| r.sequence(3, |r| r.text(10)))
        });
        self.in_any("LongSeqSeq", Some(&LONG_SEQ_SEQ_TYPE), |r| r.sequence(5, |r| r.sequence(40, i32::of)));
        self.in_any("PointSeq", Some(&POINT_SEQ_TYPE), |r| r.sequence(12, Point::of));
        self.in_any("MixedSeq", Some(&MIXED_SEQ_TYPE), |r| r.sequence(5, Mixed::of));
        self.in_any("GappedSeq", Some(&GAPPED_SEQ_TYPE), |r| r.sequence(400, Gapped::of));
        self.in_any("PersonSeq", Some(&PERSON_SEQ_TYPE), |r| r.sequence(4, Person::of));
        self.in_any("MatrixSeq", Some(&MATRIX_SEQ_TYPE), |r| -> MatrixSeq {
            r.sequence(3, |r| r.array(|r| r.array(f64::of)))
        });
        self.in_any("OnColourSeq", Some(&ON_COLOUR_SEQ_TYPE), |r| r.sequence(4, OnColour::of));
    }

    fn arrays_in_any(&self) {
        self.in_any("OctetArray", Some(&OCTET_ARRAY_TYPE), |r| -> OctetArray { r.array(u8::of) });
        self.in_any("LongArray", Some(&LONG_ARRAY_TYPE), |r| -> LongArray { r.array(i32::of) });
        self.in_any("Matrix", Some(&MATRIX_TYPE), |r| -> Matrix { r.array(|r| r.array(f64::of)) });
        self.in_any("Cube", Some(&CUBE_TYPE), |r| -> Cube { r.array(|r| r.array(|r| r.array(i16::of))) });
        self.in_any("StringArray", Some(&STRING_ARRAY_TYPE), |r| -> StringArray { r.array(|r| r.text(12)) });
        self.in_any("PointArray", Some(&POINT_ARRAY_TYPE), |r| -> PointArray { r.array(Point::of) });
        self.in_any("PersonArray", Some(&PERSON_ARRAY_TYPE), |r| -> PersonArray { r.array(Person::of) });
        self.in_any("LongSeqArray", Some(&LONG_SEQ_ARRAY_TYPE), |r| -> LongSeqArray {
            r.array(|r| r.sequence(40, i32::of))
        });
        self.in_any("LongArrayRows", Some(&LONG_ARRAY_ROWS_TYPE), |r| -> LongArrayRows {
            r.array(|r| r.array(i32::of))
        });
        self.in_any("LargeArray", Some(&LARGE_ARRAY_TYPE), |r| -> LargeArray { LargeArray::from(r.array(u8::of)) });
    }

    fn constructed_in_any(&self) {
        self.in_any("Point", None, Point::of);
        self.in_any("Mixed", None, Mixed::of);
        self.in_any("Gapped", None, Gapped::of);
        self.in_any("Segment", None, Segment::of);
        self.in_any("Person", None, Person::of);
        self.in_any("Keywords", None, Keywords::of);
        self.in_any("Tree", None, Tree::of);
        self.in_any("Record", None, Record::of);
        self.in_any("OnBoolean", None, OnBoolean::of);
        self.in_any("OnChar", None, OnChar::of);
        self.in_any("OnShort", None, OnShort::of);
        self.in_any("OnUShort", None, OnUShort::of);
        self.in_any("OnLong", None, OnLong::of);
        self.in_any("OnULong", None, OnULong::of);
        self.in_any("OnLongLong", None, OnLongLong::of);
        self.in_any("OnULongLong", None, OnULongLong::of);
        self.in_any("OnColour", None, OnColour::of);
        self.in_any("exception", None, |r| Reason { code: i32::of(r), why: r.text(9) });
    }

    fn references_in_any(&self) {
        let mine = || Some(self.mine.clone());
        let suite = || Some(self.suite.as_object().clone());
        self.in_any("Bouncer", None, |_| mine());
        self.in_any("nil", None, |_| None::<BouncerRef>);
        self.in_any("Object", None, |_| suite());
        self.in_any("BouncerSeq", Some(&BOUNCER_SEQ_TYPE), |_| vec![mine(), None, mine()]);
        self.in_any("Link", None, |r| Link { label: r.text(9), target: mine(), anything: suite() });
        self.in_any("TypeCode", None, |r| {
            let types = u64::try_from(ALL_TYPES.len()).unwrap_or(1);
            TypeCode::from_description(ALL_TYPES[usize::try_from(r.below(types)).unwrap_or_default()])
        });
    }

    fn packed(&self) {
        let record = |round| Record::of(&mut self.random(round));
        self.report.check("pack", || {
            for value in (0..self.options.rounds).map(record) {
                let trouble = differs("value", &value, &self.suite.pack(&value)?.extract()?);
                if !trouble.is_empty() {
                    return Ok(trouble);
                }
            }
            Ok(String::new())
        });
        self.report.check("unpack", || {
            for value in (0..self.options.rounds).map(record) {
                let trouble = match self.suite.unpack(&Any::new(&value)?) {
                    Ok(got) => differs("value", &value, &got),
                    Err(error) => error.to_string(),
                };
                if !trouble.is_empty() {
                    return Ok(trouble);
                }
            }
            Ok(match self.suite.unpack(&Any::new(&1i32)?) {
                Err(dynamics::UnpackError::Plain(_)) => String::new(),
                other => format!("expected Plain got {other:?}"),
            })
        });
    }
}

static ALL_TYPES: [&corelane::mapping::StaticTypeCode; 12] = [
    &COLOUR_TYPE,
    &SHORT_NAME_TYPE,
    &BOUNDED_NESTED_SEQ_TYPE,
    &MIXED_TYPE,
    &TREE_TYPE,
    &CUBE_TYPE,
    &ON_BOOLEAN_TYPE,
    &ON_CHAR_TYPE,
    &RECORD_TYPE,
    &REASON_TYPE,
    &BOUNCER_TYPE,
    corelane::mapping::description::ANY,
];
