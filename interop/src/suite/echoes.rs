//! The echo operations of the suite's servant: the result is `a`, `b` becomes `a`, and `c` becomes
//! the former `b`.

use corelane::{Any, Context, LongDouble, ObjectRef, Octets, SystemException, TypeCode};

use super::servants::SuiteServant;
use crate::interop::*;

trait Keep<T> {
    fn keep(self) -> T;
}

macro_rules! kept_as_they_are {
    ($($t:ty)*) => { $(impl Keep<$t> for $t {
        fn keep(self) -> $t {
            self
        }
    })* };
}
kept_as_they_are!(u8 bool char i16 u16 i32 u32 i64 u64 f32 f64 LongDouble Colour);

impl<T: Clone> Keep<T> for &T {
    fn keep(self) -> T {
        self.clone()
    }
}

impl<T: Clone> Keep<Vec<T>> for &[T] {
    fn keep(self) -> Vec<T> {
        self.to_vec()
    }
}

impl<T: Clone> Keep<Option<T>> for Option<&T> {
    fn keep(self) -> Option<T> {
        self.cloned()
    }
}

impl Keep<Octets> for &[u8] {
    fn keep(self) -> Octets {
        Octets::from(self.to_vec())
    }
}

impl Keep<String> for &str {
    fn keep(self) -> String {
        self.to_owned()
    }
}

impl Keep<Vec<String>> for &[&str] {
    fn keep(self) -> Vec<String> {
        self.iter().map(|text| (*text).to_owned()).collect()
    }
}

impl Keep<LargeArray> for &[u8; 8192] {
    fn keep(self) -> LargeArray {
        LargeArray::from(*self)
    }
}

macro_rules! echoes {
    ($($operation:ident: $argument:ty => $result:ty;)*) => { $(
        fn $operation(&self, a: $argument, b: $argument) -> Result<($result, $result, $result), SystemException> {
            Ok((a.keep(), a.keep(), b.keep()))
        }
    )* };
}

impl Basics for SuiteServant {
    echoes! {
        echo_octet: u8 => u8;
        echo_boolean: bool => bool;
        echo_char: char => char;
        echo_short: i16 => i16;
        echo_ushort: u16 => u16;
        echo_long: i32 => i32;
        echo_ulong: u32 => u32;
        echo_longlong: i64 => i64;
        echo_ulonglong: u64 => u64;
        echo_float: f32 => f32;
        echo_double: f64 => f64;
        echo_longdouble: LongDouble => LongDouble;
        echo_string: &str => String;
        echo_short_name: &str => ShortName;
        echo_colour: Colour => Colour;
        echo_customer_id: CustomerId => CustomerId;
    }
}

impl Sequences for SuiteServant {
    echoes! {
        echo_octet_seq: &[u8] => OctetSeq;
        echo_boolean_seq: &[bool] => BooleanSeq;
        echo_char_seq: &[char] => CharSeq;
        echo_short_seq: &[i16] => ShortSeq;
        echo_ushort_seq: &[u16] => UShortSeq;
        echo_long_seq: &[i32] => LongSeq;
        echo_ulong_seq: &[u32] => ULongSeq;
        echo_longlong_seq: &[i64] => LongLongSeq;
        echo_ulonglong_seq: &[u64] => ULongLongSeq;
        echo_float_seq: &[f32] => FloatSeq;
        echo_double_seq: &[f64] => DoubleSeq;
        echo_string_seq: &[&str] => StringSeq;
        echo_short_name_seq: &[&str] => ShortNameSeq;
        echo_colour_seq: &[Colour] => ColourSeq;
        echo_customer_list: &[CustomerId] => CustomerList;
        echo_bounded_long_seq: &[i32] => BoundedLongSeq;
        echo_bounded_octet_seq: &[u8] => BoundedOctetSeq;
        echo_bounded_string_seq: &[&str] => BoundedStringSeq;
        echo_long_seq_seq: &[LongSeq] => LongSeqSeq;
        echo_bounded_nested_seq: &[BoundedStringSeq] => BoundedNestedSeq;
        echo_point_seq: &[Point] => PointSeq;
        echo_mixed_seq: &[Mixed] => MixedSeq;
        echo_gapped_seq: &[Gapped] => GappedSeq;
        echo_person_seq: &[Person] => PersonSeq;
        echo_matrix_seq: &[Matrix] => MatrixSeq;
        echo_on_colour_seq: &[OnColour] => OnColourSeq;
    }
}

impl Constructed for SuiteServant {
    echoes! {
        echo_point: &Point => Point;
        echo_mixed: &Mixed => Mixed;
        echo_gapped: &Gapped => Gapped;
        echo_segment: &Segment => Segment;
        echo_person: &Person => Person;
        echo_keywords: &Keywords => Keywords;
        echo_tree: &Tree => Tree;
        echo_record: &Record => Record;
        echo_on_boolean: &OnBoolean => OnBoolean;
        echo_on_char: &OnChar => OnChar;
        echo_on_short: &OnShort => OnShort;
        echo_on_ushort: &OnUShort => OnUShort;
        echo_on_long: &OnLong => OnLong;
        echo_on_ulong: &OnULong => OnULong;
        echo_on_longlong: &OnLongLong => OnLongLong;
        echo_on_ulonglong: &OnULongLong => OnULongLong;
        echo_on_colour: &OnColour => OnColour;
    }
}

impl Arrays for SuiteServant {
    echoes! {
        echo_octet_array: &OctetArray => OctetArray;
        echo_long_array: &LongArray => LongArray;
        echo_matrix: &Matrix => Matrix;
        echo_cube: &Cube => Cube;
        echo_string_array: &StringArray => StringArray;
        echo_point_array: &PointArray => PointArray;
        echo_person_array: &PersonArray => PersonArray;
        echo_long_seq_array: &LongSeqArray => LongSeqArray;
        echo_long_array_rows: &LongArrayRows => LongArrayRows;
        echo_large_array: &[u8; 8192] => LargeArray;
    }
}

impl Wide for SuiteServant {
    echoes! {
        echo_wchar: char => char;
        echo_wstring: &str => String;
        echo_short_wide_name: &str => ShortWideName;
        echo_wchar_seq: &[char] => WCharSeq;
        echo_wstring_seq: &[&str] => WStringSeq;
        echo_wchar_array: &WCharArray => WCharArray;
        echo_wide_record: &WideRecord => WideRecord;
    }

    fn wide_constants(&self) -> Result<(char, String), SystemException> {
        Ok((A_WCHAR, A_WSTRING.to_owned()))
    }
}

impl Contexts for SuiteServant {
    fn properties(&self, text: &str) -> Result<StringSeq, SystemException> {
        let context = Context::of_current_call();
        let told = context.iter().flat_map(|(name, value)| [name, value]);
        Ok(std::iter::once(text).chain(told).map(str::to_owned).collect())
    }
}

impl Dynamics for SuiteServant {
    echoes! {
        echo_any: &Any => Any;
        echo_type_code: &TypeCode => TypeCode;
    }

    fn pack(&self, value: &Record) -> Result<Any, SystemException> {
        Any::new(value)
    }

    fn unpack(&self, value: &Any) -> Result<Record, dynamics::UnpackError> {
        if value.is::<Record>() { Ok(value.extract()?) } else { Err(Plain.into()) }
    }
}

impl Objects for SuiteServant {
    echoes! {
        echo_bouncer: Option<&BouncerRef> => Option<BouncerRef>;
        echo_object: Option<&ObjectRef> => Option<ObjectRef>;
        echo_bouncer_seq: &[Option<BouncerRef>] => BouncerSeq;
        echo_link: &Link => Link;
    }

    fn server_bouncer(&self) -> Result<Option<BouncerRef>, SystemException> {
        Ok(Some(self.bouncer.clone()))
    }

    fn server_bottom(&self) -> Result<Option<BaseRef>, SystemException> {
        Ok(Some(self.bottom.clone()))
    }

    fn gone(&self) -> Result<Option<BaseRef>, SystemException> {
        self.gone_object().map(Some)
    }

    fn call_back(
        &self,
        target: Option<&BouncerRef>,
        kind: Failure,
        code: i32,
        text: &str,
    ) -> Result<i32, objects::CallBackError> {
        self.pass_on(target, kind, code, text)
    }

    fn send_back(&self, target: Option<&BouncerRef>, values: &[i32]) -> Result<(), SystemException> {
        let target = super::servants::given(target)?;
        values.iter().try_for_each(|value| target.receive(*value))
    }
}
