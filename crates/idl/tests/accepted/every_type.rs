// Made by the IDL compiler of Corelane from every_type.idl. Changes here are lost.

/// Everything that IDL
/// can say about data.
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::approx_constant, clippy::enum_variant_names)]
#[allow(clippy::large_enum_variant, clippy::len_without_is_empty)]
#[allow(clippy::module_inception, clippy::new_ret_no_self, clippy::pedantic)]
#[allow(clippy::result_large_err, clippy::should_implement_trait)]
#[allow(clippy::too_many_arguments, clippy::type_complexity)]
#[allow(clippy::wrong_self_convention)]
pub mod every_type {
    use corelane::mapping::{
        Cast, Cdr, CdrError, Decoder, Encoder, Operation, OperationTable, ServerCall, Skeleton,
        read_reference, write_reference,
    };
    use corelane::{
        Any, LongDouble, ObjectRef, Octets, Reference, Servant, SystemException, TypeCode,
    };

    pub const LIMIT: i32 = 16;
    pub const BIG: u64 = 18446744073709551615;
    pub const GREETING: &str = "hello \"world\" \n";
    pub const WIDE_GREETING: &str = "中";
    pub const ONE_LETTER: char = 'x';
    pub const PI: f64 = 3.14159265358979;
    pub const HALF: f32 = 0.5;
    pub const YES: bool = true;
    pub const MASK: u8 = 240;
    pub const VERY_PRECISE: LongDouble = LongDouble::from_f64(10000000000.0);

    /// The colours
    /// of the rainbow.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Colour {
        Red,
        Green,
        DeepBlue,
    }

    corelane::enumeration! { Colour { Red, Green, DeepBlue } }

    corelane::describe! { pub static COLOUR_TYPE for Colour = enumeration("IDL:corelane.test/EveryType/Colour:1.0", "Colour", &[
        enumerator("red"),
        enumerator("green"),
        enumerator("deep_blue"),
    ]) }

    pub const FAVOURITE: Colour = Colour::Green;
    pub type Longs = Vec<i32>;
    corelane::describe! { pub static LONGS_TYPE = alias("IDL:corelane.test/EveryType/Longs:1.0", "Longs", &sequence(LONG, 0)) }
    pub type Blob = Octets;
    corelane::describe! { pub static BLOB_TYPE = alias("IDL:corelane.test/EveryType/Blob:1.0", "Blob", &sequence(OCTET, 0)) }
    pub type Key = Octets;
    corelane::describe! { pub static KEY_TYPE = alias("IDL:corelane.test/EveryType/Key:1.0", "Key", &sequence(OCTET, 16)) }
    pub type Names = Vec<String>;
    corelane::describe! { pub static NAMES_TYPE = alias("IDL:corelane.test/EveryType/Names:1.0", "Names", &sequence(STRING, 0)) }
    pub type WideNames = Vec<String>;
    corelane::describe! { pub static WIDE_NAMES_TYPE = alias("IDL:corelane.test/EveryType/WideNames:1.0", "WideNames", &sequence(&wstring(8), 4)) }
    pub type Flags = Vec<bool>;
    corelane::describe! { pub static FLAGS_TYPE = alias("IDL:corelane.test/EveryType/Flags:1.0", "Flags", &sequence(BOOLEAN, 0)) }
    pub type Letters = Vec<char>;
    corelane::describe! { pub static LETTERS_TYPE = alias("IDL:corelane.test/EveryType/Letters:1.0", "Letters", &sequence(CHAR, 0)) }
    pub type Colours = Vec<Colour>;
    corelane::describe! { pub static COLOURS_TYPE = alias("IDL:corelane.test/EveryType/Colours:1.0", "Colours", &sequence(&COLOUR_TYPE, 3)) }
    pub type ShortText = String;
    corelane::describe! { pub static SHORT_TEXT_TYPE = alias("IDL:corelane.test/EveryType/ShortText:1.0", "ShortText", &string(10)) }
    pub type Wide = String;
    corelane::describe! { pub static WIDE_TYPE = alias("IDL:corelane.test/EveryType/Wide:1.0", "Wide", WSTRING) }
    pub type Matrix = [[i32; 3]; 2];
    corelane::describe! { pub static MATRIX_TYPE = alias("IDL:corelane.test/EveryType/Matrix:1.0", "Matrix", &array(&array(LONG, 3), 2)) }
    pub type Lines = [String; 2];
    corelane::describe! { pub static LINES_TYPE = alias("IDL:corelane.test/EveryType/Lines:1.0", "Lines", &array(STRING, 2)) }
    pub type Code = [char; 4];
    corelane::describe! { pub static CODE_TYPE = alias("IDL:corelane.test/EveryType/Code:1.0", "Code", &array(CHAR, 4)) }
    pub type Page = Box<[u8; 4096]>;
    corelane::describe! { pub static PAGE_TYPE = alias("IDL:corelane.test/EveryType/Page:1.0", "Page", &array(OCTET, 4096)) }
    pub type Book = Box<[String; 300]>;
    corelane::describe! { pub static BOOK_TYPE = alias("IDL:corelane.test/EveryType/Book:1.0", "Book", &array(STRING, 300)) }
    pub type BigCode = Box<[char; 2000]>;
    corelane::describe! { pub static BIG_CODE_TYPE = alias("IDL:corelane.test/EveryType/BigCode:1.0", "BigCode", &array(WCHAR, 2000)) }
    pub type Precise = LongDouble;
    corelane::describe! { pub static PRECISE_TYPE = alias("IDL:corelane.test/EveryType/Precise:1.0", "Precise", LONG_DOUBLE) }
    pub type PreciseSeq = Vec<Precise>;
    corelane::describe! { pub static PRECISE_SEQ_TYPE = alias("IDL:corelane.test/EveryType/PreciseSeq:1.0", "PreciseSeq", &sequence(&PRECISE_TYPE, 0)) }

    /// A point.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Point {
        pub x: f64,
        pub y: f64,
        /// The height.
        pub z: f64,
    }

    corelane::plain! { Point { x: f64, y: f64, z: f64 } }

    corelane::describe! { pub static POINT_TYPE for Point = structure("IDL:corelane.test/EveryType/Point:1.0", "Point", &[
        member("x", DOUBLE),
        member("y", DOUBLE),
        member("z", DOUBLE),
    ]) }

    pub type Path = Vec<Point>;
    corelane::describe! { pub static PATH_TYPE = alias("IDL:corelane.test/EveryType/Path:1.0", "Path", &sequence(&POINT_TYPE, 0)) }
    pub type Paths = Vec<Path>;
    corelane::describe! { pub static PATHS_TYPE = alias("IDL:corelane.test/EveryType/Paths:1.0", "Paths", &sequence(&PATH_TYPE, 2)) }

    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Plain {
        pub s: i16,
        pub us: u16,
        pub l: i32,
        pub ul: u32,
        pub ll: i64,
        pub ull: u64,
        pub f: f32,
        pub d: f64,
        pub c: char,
        pub b: bool,
        pub o: u8,
        pub c1: Colour,
        pub m: Matrix,
        pub c2: Code,
        pub p: Point,
    }

    impl Cdr for Plain {
        const MIN_SIZE: usize = 99;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_i16(self.s);
            e.write_u16(self.us);
            e.write_i32(self.l);
            e.write_u32(self.ul);
            e.write_i64(self.ll);
            e.write_u64(self.ull);
            e.write_f32(self.f);
            e.write_f64(self.d);
            e.write_char(self.c)?;
            e.write_bool(self.b);
            e.write_u8(self.o);
            Cdr::encode(&self.c1, e)?;
            Cdr::encode(&self.m, e)?;
            for item in &self.c2 {
                e.write_char(*item)?;
            }
            Cdr::encode(&self.p, e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                s: d.read_i16()?,
                us: d.read_u16()?,
                l: d.read_i32()?,
                ul: d.read_u32()?,
                ll: d.read_i64()?,
                ull: d.read_u64()?,
                f: d.read_f32()?,
                d: d.read_f64()?,
                c: d.read_char()?,
                b: d.read_bool()?,
                o: d.read_u8()?,
                c1: Cdr::decode(d)?,
                m: Cdr::decode(d)?,
                c2: {
                    let mut list: Vec<char> = Vec::with_capacity(4);
                    for _ in 0..4 {
                        list.push(d.read_char()?);
                    }
                    let array = list.try_into();
                    array.map_err(|_| CdrError::Truncated)?
                },
                p: Cdr::decode(d)?,
            })
        }
    }

    corelane::describe! { pub static PLAIN_TYPE for Plain = structure("IDL:corelane.test/EveryType/Plain:1.0", "Plain", &[
        member("s", SHORT),
        member("us", USHORT),
        member("l", LONG),
        member("ul", ULONG),
        member("ll", LONG_LONG),
        member("ull", ULONG_LONG),
        member("f", FLOAT),
        member("d", DOUBLE),
        member("c", CHAR),
        member("b", BOOLEAN),
        member("o", OCTET),
        member("c1", &COLOUR_TYPE),
        member("m", &MATRIX_TYPE),
        member("c2", &CODE_TYPE),
        member("p", &POINT_TYPE),
    ]) }

    #[derive(Clone, Debug, PartialEq)]
    pub struct Variable {
        pub r#type: String,
        pub self_: String,
        pub bounded: ShortText,
        pub a_blob: Blob,
        pub a_key: Key,
        pub a_names: Names,
        pub wide_names: WideNames,
        pub a_flags: Flags,
        pub a_letters: Letters,
        pub a_colours: Colours,
        pub a_lines: Lines,
        pub a_page: Page,
        pub a_book: Book,
        pub big_code: BigCode,
        pub w: char,
        pub a_precise: Precise,
        pub several: PreciseSeq,
        pub nested: Vec<Vec<char>>,
        pub any_object: Option<ObjectRef>,
        pub objects: Vec<Option<ObjectRef>>,
        pub a_paths: Paths,
    }

    impl Cdr for Variable {
        const MIN_SIZE: usize = 7385;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_str(&self.r#type)?;
            e.write_wstr(&self.self_)?;
            e.write_bounded_str(&self.bounded, 10)?;
            Cdr::encode(&self.a_blob, e)?;
            e.write_len_bounded(self.a_key.len(), 16)?;
            e.write_raw(&self.a_key);
            Cdr::encode(&self.a_names, e)?;
            e.write_len_bounded(self.wide_names.len(), 4)?;
            for item in &self.wide_names {
                e.write_bounded_wstr(item, 8)?;
            }
            Cdr::encode(&self.a_flags, e)?;
            e.write_len(self.a_letters.len())?;
            for item in &self.a_letters {
                e.write_char(*item)?;
            }
            e.write_len_bounded(self.a_colours.len(), 3)?;
            Cdr::encode_all(&self.a_colours, e)?;
            Cdr::encode(&self.a_lines, e)?;
            Cdr::encode(&self.a_page, e)?;
            Cdr::encode(&self.a_book, e)?;
            for item in self.big_code.iter() {
                e.write_wchar(*item)?;
            }
            e.write_wchar(self.w)?;
            Cdr::encode(&self.a_precise, e)?;
            Cdr::encode(&self.several, e)?;
            e.write_len(self.nested.len())?;
            for item in &self.nested {
                e.write_len(item.len())?;
                for item in item {
                    e.write_wchar(*item)?;
                }
            }
            write_reference(e, self.any_object.as_ref())?;
            e.write_len_bounded(self.objects.len(), 2)?;
            for item in &self.objects {
                write_reference(e, item.as_ref())?;
            }
            e.write_len_bounded(self.a_paths.len(), 2)?;
            Cdr::encode_all(&self.a_paths, e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                r#type: d.read_string()?,
                self_: d.read_wstring()?,
                bounded: d.read_bounded_string(10)?,
                a_blob: d.read_octets_owned()?,
                a_key: {
                    let len = d.read_len_bounded(1, 16)?;
                    d.read_raw(len)?.into()
                },
                a_names: Cdr::decode(d)?,
                wide_names: {
                    let len = d.read_len_bounded(4, 4)?;
                    let mut list: Vec<String> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        list.push(d.read_bounded_wstring(8)?);
                    }
                    list
                },
                a_flags: Cdr::decode(d)?,
                a_letters: {
                    let len = d.read_len(1)?;
                    let mut list: Vec<char> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        list.push(d.read_char()?);
                    }
                    list
                },
                a_colours: {
                    let len = d.read_len_bounded(4, 3)?;
                    Cdr::decode_many(len, d)?
                },
                a_lines: Cdr::decode(d)?,
                a_page: Cdr::decode(d)?,
                a_book: Cdr::decode(d)?,
                big_code: {
                    let mut list: Vec<char> = Vec::with_capacity(1024);
                    for _ in 0..2000 {
                        list.push(d.read_wchar()?);
                    }
                    let array = list.into_boxed_slice().try_into();
                    array.map_err(|_| CdrError::Truncated)?
                },
                w: d.read_wchar()?,
                a_precise: Cdr::decode(d)?,
                several: Cdr::decode(d)?,
                nested: {
                    let len = d.read_len(4)?;
                    let mut list: Vec<Vec<char>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        list.push({
                            let len = d.read_len(1)?;
                            let mut list: Vec<char> = Vec::with_capacity(len.min(1024));
                            for _ in 0..len {
                                list.push(d.read_wchar()?);
                            }
                            list
                        });
                    }
                    list
                },
                any_object: read_reference(d)?,
                objects: {
                    let len = d.read_len_bounded(8, 2)?;
                    let mut list: Vec<Option<ObjectRef>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        list.push(read_reference(d)?);
                    }
                    list
                },
                a_paths: {
                    let len = d.read_len_bounded(4, 2)?;
                    Cdr::decode_many(len, d)?
                },
            })
        }
    }

    corelane::describe! { pub static VARIABLE_TYPE for Variable = structure("IDL:corelane.test/EveryType/Variable:1.0", "Variable", &[
        member("type", STRING),
        member("self", WSTRING),
        member("bounded", &SHORT_TEXT_TYPE),
        member("a_blob", &BLOB_TYPE),
        member("a_key", &KEY_TYPE),
        member("a_names", &NAMES_TYPE),
        member("wide_names", &WIDE_NAMES_TYPE),
        member("a_flags", &FLAGS_TYPE),
        member("a_letters", &LETTERS_TYPE),
        member("a_colours", &COLOURS_TYPE),
        member("a_lines", &LINES_TYPE),
        member("a_page", &PAGE_TYPE),
        member("a_book", &BOOK_TYPE),
        member("big_code", &BIG_CODE_TYPE),
        member("w", WCHAR),
        member("a_precise", &PRECISE_TYPE),
        member("several", &PRECISE_SEQ_TYPE),
        member("nested", &sequence(&sequence(WCHAR, 0), 0)),
        member("any_object", OBJECT),
        member("objects", &sequence(OBJECT, 2)),
        member("a_paths", &PATHS_TYPE),
    ]) }

    pub type Trees = Vec<Tree>;
    corelane::describe! { pub static TREES_TYPE = alias("IDL:corelane.test/EveryType/Trees:1.0", "Trees", &sequence(&TREE_TYPE, 0)) }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct Tree {
        pub value: i32,
        pub children: Trees,
    }

    impl Cdr for Tree {
        const MIN_SIZE: usize = 8;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_i32(self.value);
            Cdr::encode(&self.children, e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                value: d.read_i32()?,
                children: Cdr::decode(d)?,
            })
        }
    }

    corelane::describe! { pub static TREE_TYPE for Tree = structure("IDL:corelane.test/EveryType/Tree:1.0", "Tree", &[
        member("value", LONG),
        member("children", &TREES_TYPE),
    ]) }

    #[derive(Clone, Debug, PartialEq)]
    pub enum Shape {
        APoint(Point),
        Name(String),
        List(Vec<String>),
    }

    impl Shape {
        /// The value that chooses the member.
        pub fn discriminator(&self) -> Colour {
            match self {
                Self::APoint(_) => Colour::Red,
                Self::Name(_) => Colour::Green,
                Self::List(_) => Colour::DeepBlue,
            }
        }
    }

    impl Cdr for Shape {
        const MIN_SIZE: usize = 4;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            Cdr::encode(&self.discriminator(), e)?;
            match self {
                Self::APoint(value) => {
                    Cdr::encode(value, e)?;
                }
                Self::Name(value) => {
                    e.write_str(value)?;
                }
                Self::List(value) => {
                    e.write_len(value.len())?;
                    for item in value {
                        e.write_wstr(item)?;
                    }
                }
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator: Colour = Cdr::decode(d)?;
            match discriminator {
                Colour::Red => Ok(Self::APoint(Cdr::decode(d)?)),
                Colour::Green => Ok(Self::Name(d.read_string()?)),
                Colour::DeepBlue => {
                    let value = {
                        let len = d.read_len(4)?;
                        let mut list: Vec<String> = Vec::with_capacity(len.min(1024));
                        for _ in 0..len {
                            list.push(d.read_wstring()?);
                        }
                        list
                    };
                    Ok(Self::List(value))
                }
            }
        }
    }

    corelane::describe! { pub static SHAPE_TYPE for Shape = union("IDL:corelane.test/EveryType/Shape:1.0", "Shape", &COLOUR_TYPE, -1, &[
        arm(0, "a_point", &POINT_TYPE),
        arm(1, "name", STRING),
        arm(2, "list", &sequence(WSTRING, 0)),
    ]) }

    #[derive(Clone, Debug, PartialEq)]
    pub enum Number {
        Small(i32, i32),
        Large(f64),
        Other(i32, Blob),
    }

    impl Number {
        /// The value that chooses the member.
        pub fn discriminator(&self) -> i32 {
            match self {
                Self::Small(discriminator, _) => *discriminator,
                Self::Large(_) => 4,
                Self::Other(discriminator, _) => *discriminator,
            }
        }
    }

    impl Cdr for Number {
        const MIN_SIZE: usize = 4;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            let chosen = match self {
                Self::Small(discriminator, _) => matches!(discriminator, -3 | 1 | 2),
                Self::Other(discriminator, _) => !matches!(discriminator, -3 | 1 | 2 | 4),
                _ => true,
            };
            if !chosen {
                return Err(CdrError::BadDiscriminator);
            }
            e.write_i32(self.discriminator());
            match self {
                Self::Small(_, value) => {
                    e.write_i32(*value);
                }
                Self::Large(value) => {
                    e.write_f64(*value);
                }
                Self::Other(_, value) => {
                    Cdr::encode(value, e)?;
                }
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_i32()?;
            match discriminator {
                -3 | 1 | 2 => Ok(Self::Small(discriminator, d.read_i32()?)),
                4 => Ok(Self::Large(d.read_f64()?)),
                _ => Ok(Self::Other(discriminator, d.read_octets_owned()?)),
            }
        }
    }

    corelane::describe! { pub static NUMBER_TYPE for Number = union("IDL:corelane.test/EveryType/Number:1.0", "Number", LONG, 4, &[
        arm(1, "small", LONG),
        arm(2, "small", LONG),
        arm(-3, "small", LONG),
        arm(4, "large", DOUBLE),
        member("other", &BLOB_TYPE),
    ]) }

    #[derive(Clone, Debug, PartialEq)]
    pub enum Maybe {
        Value(Variable),
        /// No member: the discriminator has a value without a label.
        Other(bool),
    }

    impl Maybe {
        /// The value that chooses the member.
        pub fn discriminator(&self) -> bool {
            match self {
                Self::Value(_) => true,
                Self::Other(discriminator) => *discriminator,
            }
        }
    }

    impl Cdr for Maybe {
        const MIN_SIZE: usize = 1;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            let chosen = match self {
                Self::Other(discriminator) => !*discriminator,
                _ => true,
            };
            if !chosen {
                return Err(CdrError::BadDiscriminator);
            }
            e.write_bool(self.discriminator());
            match self {
                Self::Value(value) => {
                    Cdr::encode(value, e)?;
                }
                Self::Other(_) => {}
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_bool()?;
            match discriminator {
                true => Ok(Self::Value(Cdr::decode(d)?)),
                _ => Ok(Self::Other(discriminator)),
            }
        }
    }

    corelane::describe! { pub static MAYBE_TYPE for Maybe = union("IDL:corelane.test/EveryType/Maybe:1.0", "Maybe", BOOLEAN, -1, &[
        arm(1, "value", &VARIABLE_TYPE),
    ]) }

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Letter {
        First(char, u8),
        Last(letter::Kind),
        /// No member: the discriminator has a value without a label.
        Other(char),
    }

    impl Letter {
        /// The value that chooses the member.
        pub fn discriminator(&self) -> char {
            match self {
                Self::First(discriminator, _) => *discriminator,
                Self::Last(_) => 'z',
                Self::Other(discriminator) => *discriminator,
            }
        }
    }

    impl Cdr for Letter {
        const MIN_SIZE: usize = 1;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            let chosen = match self {
                Self::First(discriminator, _) => matches!(discriminator, '\'' | 'a'),
                Self::Other(discriminator) => !matches!(discriminator, '\'' | 'a' | 'z'),
                _ => true,
            };
            if !chosen {
                return Err(CdrError::BadDiscriminator);
            }
            e.write_char(self.discriminator())?;
            match self {
                Self::First(_, value) => {
                    e.write_u8(*value);
                }
                Self::Last(value) => {
                    Cdr::encode(value, e)?;
                }
                Self::Other(_) => {}
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_char()?;
            match discriminator {
                '\'' | 'a' => Ok(Self::First(discriminator, d.read_u8()?)),
                'z' => Ok(Self::Last(Cdr::decode(d)?)),
                _ => Ok(Self::Other(discriminator)),
            }
        }
    }

    corelane::describe! { pub static LETTER_TYPE for Letter = union("IDL:corelane.test/EveryType/Letter:1.0", "Letter", CHAR, -1, &[
        arm(97, "first", OCTET),
        arm(39, "first", OCTET),
        arm(122, "last", &letter::KIND_TYPE),
    ]) }

    /// What belongs to `Letter`.
    pub mod letter {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            One,
            Two,
        }

        corelane::enumeration! { Kind { One, Two } }

        corelane::describe! { pub static KIND_TYPE for Kind = enumeration("IDL:corelane.test/EveryType/Letter/Kind:1.0", "Kind", &[
            enumerator("one"),
            enumerator("two"),
        ]) }
    }

    /// A value of any type.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Described {
        pub value: Any,
        pub r#type: TypeCode,
        pub more: Vec<Any>,
        pub pair: [Any; 2],
    }

    impl Cdr for Described {
        const MIN_SIZE: usize = 20;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            Cdr::encode(&self.value, e)?;
            Cdr::encode(&self.r#type, e)?;
            Cdr::encode(&self.more, e)?;
            Cdr::encode(&self.pair, e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                value: Cdr::decode(d)?,
                r#type: Cdr::decode(d)?,
                more: Cdr::decode(d)?,
                pair: Cdr::decode(d)?,
            })
        }
    }

    corelane::describe! { pub static DESCRIBED_TYPE for Described = structure("IDL:corelane.test/EveryType/Described:1.0", "Described", &[
        member("value", ANY),
        member("type", TYPE_CODE),
        member("more", &sequence(ANY, 0)),
        member("pair", &array(ANY, 2)),
    ]) }

    #[derive(Clone, Debug, PartialEq)]
    pub enum Perhaps {
        Value(Any),
        Type(TypeCode),
    }

    impl Perhaps {
        /// The value that chooses the member.
        pub fn discriminator(&self) -> bool {
            match self {
                Self::Value(_) => true,
                Self::Type(_) => false,
            }
        }
    }

    impl Cdr for Perhaps {
        const MIN_SIZE: usize = 1;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_bool(self.discriminator());
            match self {
                Self::Value(value) => {
                    Cdr::encode(value, e)?;
                }
                Self::Type(value) => {
                    Cdr::encode(value, e)?;
                }
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_bool()?;
            match discriminator {
                true => Ok(Self::Value(Cdr::decode(d)?)),
                false => Ok(Self::Type(Cdr::decode(d)?)),
            }
        }
    }

    corelane::describe! { pub static PERHAPS_TYPE for Perhaps = union("IDL:corelane.test/EveryType/Perhaps:1.0", "Perhaps", BOOLEAN, -1, &[
        arm(1, "value", ANY),
        arm(0, "type", TYPE_CODE),
    ]) }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct Empty;

    impl Cdr for Empty {
        const MIN_SIZE: usize = 0;

        fn encode(&self, _: &mut Encoder<'_>) -> Result<(), CdrError> {
            Ok(())
        }

        fn decode(_: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self)
        }
    }

    corelane::user_exception! { Empty = "IDL:corelane.test/EveryType/Empty:1.0" }

    corelane::describe! { pub static EMPTY_TYPE for exception Empty = exception("IDL:corelane.test/EveryType/Empty:1.0", "Empty", &[]) }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct Failed {
        pub code: i32,
        pub why: String,
    }

    impl Cdr for Failed {
        const MIN_SIZE: usize = 8;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_i32(self.code);
            e.write_str(&self.why)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                code: d.read_i32()?,
                why: d.read_string()?,
            })
        }
    }

    corelane::user_exception! { Failed = "IDL:corelane.test/EveryType/Failed:1.0" }

    corelane::describe! { pub static FAILED_TYPE for exception Failed = exception("IDL:corelane.test/EveryType/Failed:1.0", "Failed", &[
        member("code", LONG),
        member("why", STRING),
    ]) }

    /// Every position of every type.
    pub trait Probe: Base + Second {
        fn level(&self) -> Result<i32, SystemException>;
        /// Sets `level`.
        fn set_level(&self, level: i32) -> Result<(), SystemException>;
        fn r#type(&self) -> Result<Names, SystemException>;
        /// Sets `type`.
        fn set_type(&self, r#type: &[&str]) -> Result<(), SystemException>;
        fn cube_octet(&self, o: u8) -> Result<u8, SystemException>;
        fn cube_longs(&self, a: &[i32]) -> Result<Longs, SystemException>;
        fn echo(&self, s: &str) -> Result<String, SystemException>;
        fn me(&self, p: Option<&ProbeRef>) -> Result<Option<ProbeRef>, SystemException>;
        fn pass_any(&self, i: &Any, io: &Any) -> Result<(Any, Any, TypeCode), SystemException>;
        fn pass_type(
            &self,
            i: &TypeCode,
            io: &Described,
        ) -> Result<(TypeCode, Described), SystemException>;
        fn fail(&self, code: i32) -> Result<(), probe::FailError>;
        fn fail_more(&self, code: i32) -> Result<(i32, String), probe::FailMoreError>;
        fn note(&self, n: i32) -> Result<(), SystemException>;
        fn pass_plain(
            &self,
            i: &Plain,
            io: &Plain,
        ) -> Result<(Plain, Plain, Plain), SystemException>;
        fn pass_variable(
            &self,
            i: &Variable,
            io: &Variable,
        ) -> Result<(Variable, Variable, Variable), probe::FailError>;
        fn pass_path(&self, i: &[Point], io: &[Point]) -> Result<(Path, Path), SystemException>;
        fn pass_paths(&self, i: &[Path]) -> Result<Paths, SystemException>;
        fn pass_shape(
            &self,
            i: &Shape,
            io: &Number,
        ) -> Result<(Shape, Number, Maybe), SystemException>;
        fn pass_blob(
            &self,
            i: &[u8],
            k: &[u8],
            io: &[u8],
        ) -> Result<(Blob, Blob, Key), SystemException>;
        fn pass_names(
            &self,
            i: &[&str],
            w: &[&str],
            io: &[&str],
        ) -> Result<(Names, Names), SystemException>;
        fn pass_flags(
            &self,
            f: &[bool],
            l: &[char],
            c: &[Colour],
        ) -> Result<Flags, SystemException>;
        fn pass_matrix(
            &self,
            m: &Matrix,
            p: &[u8; 4096],
            b: &[String; 300],
            c: &Code,
            l: &Lines,
            bc: &[char; 2000],
        ) -> Result<(Matrix, Lines), SystemException>;
        fn pass_object(
            &self,
            o: Option<&ObjectRef>,
            ps: &[Option<ProbeRef>],
            a: Option<&AliasRef>,
        ) -> Result<(Option<ObjectRef>, Probes), SystemException>;
        fn wide(&self, w: &str, c: char, n: char, s: &str) -> Result<String, SystemException>;
        fn pass_colour(
            &self,
            c: Colour,
            s: probe::State,
            i: &probe::Inner,
            b: bool,
            f: f32,
            ll: i64,
        ) -> Result<Colour, SystemException>;
        fn pass_precise(&self, p: LongDouble, s: &[Precise]) -> Result<Precise, SystemException>;
        fn pass_tree(&self, t: &Tree, ts: &[Tree]) -> Result<Tree, SystemException>;
        fn a_long_name_to_make_lines_break(
            &self,
            the_first_parameter: u64,
            the_second_parameter: &str,
        ) -> Result<Variable, SystemException>;

        /// A servant that runs these operations, to be activated.
        fn servant(self) -> Servant
        where
            Self: Sized,
        {
            Probe::servant_of(std::sync::Arc::new(self))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(ProbeSkeleton(this))
        }
    }

    /// A reference to a [`Probe`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct ProbeRef(BaseRef);

    impl Reference for ProbeRef {
        const REPOSITORY_ID: &'static str = "IDL:corelane.test/EveryType/Probe:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(Reference::from_object(object))
        }

        fn as_object(&self) -> &ObjectRef {
            Reference::as_object(&self.0)
        }
    }

    impl std::fmt::Display for ProbeRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl std::ops::Deref for ProbeRef {
        type Target = BaseRef;

        fn deref(&self) -> &BaseRef {
            &self.0
        }
    }

    impl From<ProbeRef> for BaseRef {
        fn from(derived: ProbeRef) -> Self {
            Reference::unchecked_narrow(Reference::as_object(&derived))
        }
    }

    impl From<ProbeRef> for SecondRef {
        fn from(derived: ProbeRef) -> Self {
            Reference::unchecked_narrow(Reference::as_object(&derived))
        }
    }

    impl ProbeRef {
        pub fn level(&self) -> Result<i32, SystemException> {
            static OPERATION: Operation = Operation::new("_get_level");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.level();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| d.read_i32();
            this.call(&OPERATION, results, &|_| Ok(()))
        }

        /// Sets `level`.
        pub fn set_level(&self, level: i32) -> Result<(), SystemException> {
            static OPERATION: Operation = Operation::new("_set_level");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.set_level(level);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            this.run(&OPERATION, &|e| {
                e.write_i32(level);
                Ok(())
            })
        }

        pub fn r#type(&self) -> Result<Names, SystemException> {
            static OPERATION: Operation = Operation::new("_get_type");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.r#type();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| Cdr::decode(d);
            this.call(&OPERATION, results, &|_| Ok(()))
        }

        /// Sets `type`.
        pub fn set_type(&self, r#type: &[&str]) -> Result<(), SystemException> {
            static OPERATION: Operation = Operation::new("_set_type");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.set_type(r#type);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            this.run(&OPERATION, &|e| {
                e.write_len(r#type.len())?;
                for item in r#type {
                    e.write_str(item)?;
                }
                Ok(())
            })
        }

        pub fn cube_octet(&self, o: u8) -> Result<u8, SystemException> {
            static OPERATION: Operation = Operation::new("cube_octet");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.cube_octet(o);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| d.read_u8();
            this.call(&OPERATION, results, &|e| {
                e.write_u8(o);
                Ok(())
            })
        }

        pub fn cube_longs(&self, a: &[i32]) -> Result<Longs, SystemException> {
            static OPERATION: Operation = Operation::new("cube_longs");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.cube_longs(a);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| Cdr::decode(d);
            this.call(&OPERATION, results, &|e| {
                e.write_len(a.len())?;
                e.write_slice_lent(a);
                Ok(())
            })
        }

        pub fn echo(&self, s: &str) -> Result<String, SystemException> {
            static OPERATION: Operation = Operation::new("echo");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.echo(s);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| d.read_string();
            this.call(&OPERATION, results, &|e| e.write_str(s))
        }

        pub fn me(&self, p: Option<&ProbeRef>) -> Result<Option<ProbeRef>, SystemException> {
            static OPERATION: Operation = Operation::new("me");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.me(p);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| read_reference(d);
            this.call(&OPERATION, results, &|e| write_reference(e, p))
        }

        pub fn pass_any(&self, i: &Any, io: &Any) -> Result<(Any, Any, TypeCode), SystemException> {
            static OPERATION: Operation = Operation::new("pass_any");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_any(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Any = Cdr::decode(d)?;
                let io: Any = Cdr::decode(d)?;
                let o: TypeCode = Cdr::decode(d)?;
                Ok((result, io, o))
            };
            this.call(&OPERATION, results, &|e| {
                Cdr::encode(i, e)?;
                Cdr::encode(io, e)
            })
        }

        pub fn pass_type(
            &self,
            i: &TypeCode,
            io: &Described,
        ) -> Result<(TypeCode, Described), SystemException> {
            static OPERATION: Operation = Operation::new("pass_type");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_type(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: TypeCode = Cdr::decode(d)?;
                let io: Described = Cdr::decode(d)?;
                Ok((result, io))
            };
            this.call(&OPERATION, results, &|e| {
                Cdr::encode(i, e)?;
                Cdr::encode(io, e)
            })
        }

        pub fn fail(&self, code: i32) -> Result<(), probe::FailError> {
            static OPERATION: Operation = Operation::new("fail");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.fail(code);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            this.run_raising(&OPERATION, &|e| {
                e.write_i32(code);
                Ok(())
            })
        }

        pub fn fail_more(&self, code: i32) -> Result<(i32, String), probe::FailMoreError> {
            static OPERATION: Operation = Operation::new("fail_more");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.fail_more(code);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result = d.read_i32()?;
                let text = d.read_string()?;
                Ok((result, text))
            };
            this.call_raising(&OPERATION, results, &|e| {
                e.write_i32(code);
                Ok(())
            })
        }

        pub fn note(&self, n: i32) -> Result<(), SystemException> {
            static OPERATION: Operation = Operation::new("note");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.note(n);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            this.send_oneway(&OPERATION, &|e| {
                e.write_i32(n);
                Ok(())
            })
        }

        pub fn pass_plain(
            &self,
            i: &Plain,
            io: &Plain,
        ) -> Result<(Plain, Plain, Plain), SystemException> {
            static OPERATION: Operation = Operation::new("pass_plain");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_plain(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Plain = Cdr::decode(d)?;
                let io: Plain = Cdr::decode(d)?;
                let o: Plain = Cdr::decode(d)?;
                Ok((result, io, o))
            };
            this.call(&OPERATION, results, &|e| {
                Cdr::encode(i, e)?;
                Cdr::encode(io, e)
            })
        }

        pub fn pass_variable(
            &self,
            i: &Variable,
            io: &Variable,
        ) -> Result<(Variable, Variable, Variable), probe::FailError> {
            static OPERATION: Operation = Operation::new("pass_variable");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_variable(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Variable = Cdr::decode(d)?;
                let io: Variable = Cdr::decode(d)?;
                let o: Variable = Cdr::decode(d)?;
                Ok((result, io, o))
            };
            this.call_raising(&OPERATION, results, &|e| {
                Cdr::encode(i, e)?;
                Cdr::encode(io, e)
            })
        }

        pub fn pass_path(
            &self,
            i: &[Point],
            io: &[Point],
        ) -> Result<(Path, Path), SystemException> {
            static OPERATION: Operation = Operation::new("pass_path");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_path(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Path = Cdr::decode(d)?;
                let io: Path = Cdr::decode(d)?;
                Ok((result, io))
            };
            this.call(&OPERATION, results, &|e| {
                e.write_len(i.len())?;
                Cdr::encode_all(i, e)?;
                e.write_len(io.len())?;
                Cdr::encode_all(io, e)
            })
        }

        pub fn pass_paths(&self, i: &[Path]) -> Result<Paths, SystemException> {
            static OPERATION: Operation = Operation::new("pass_paths");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_paths(i);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Paths = {
                    let len = d.read_len_bounded(4, 2)?;
                    Cdr::decode_many(len, d)?
                };
                Ok(result)
            };
            this.call(&OPERATION, results, &|e| {
                e.write_len_bounded(i.len(), 2)?;
                Cdr::encode_all(i, e)
            })
        }

        pub fn pass_shape(
            &self,
            i: &Shape,
            io: &Number,
        ) -> Result<(Shape, Number, Maybe), SystemException> {
            static OPERATION: Operation = Operation::new("pass_shape");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_shape(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Shape = Cdr::decode(d)?;
                let io: Number = Cdr::decode(d)?;
                let o: Maybe = Cdr::decode(d)?;
                Ok((result, io, o))
            };
            this.call(&OPERATION, results, &|e| {
                Cdr::encode(i, e)?;
                Cdr::encode(io, e)
            })
        }

        pub fn pass_blob(
            &self,
            i: &[u8],
            k: &[u8],
            io: &[u8],
        ) -> Result<(Blob, Blob, Key), SystemException> {
            static OPERATION: Operation = Operation::new("pass_blob");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_blob(i, k, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Blob = d.read_octets_owned()?;
                let io: Blob = d.read_octets_owned()?;
                let o: Key = {
                    let len = d.read_len_bounded(1, 16)?;
                    d.read_raw(len)?.into()
                };
                Ok((result, io, o))
            };
            this.call(&OPERATION, results, &|e| {
                e.write_octets(i)?;
                e.write_len_bounded(k.len(), 16)?;
                e.write_slice_lent(k);
                e.write_octets(io)
            })
        }

        pub fn pass_names(
            &self,
            i: &[&str],
            w: &[&str],
            io: &[&str],
        ) -> Result<(Names, Names), SystemException> {
            static OPERATION: Operation = Operation::new("pass_names");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_names(i, w, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Names = Cdr::decode(d)?;
                let io: Names = Cdr::decode(d)?;
                Ok((result, io))
            };
            this.call(&OPERATION, results, &|e| {
                e.write_len(i.len())?;
                for item in i {
                    e.write_str(item)?;
                }
                e.write_len_bounded(w.len(), 4)?;
                for item in w {
                    e.write_bounded_wstr(item, 8)?;
                }
                e.write_len(io.len())?;
                for item in io {
                    e.write_str(item)?;
                }
                Ok(())
            })
        }

        pub fn pass_flags(
            &self,
            f: &[bool],
            l: &[char],
            c: &[Colour],
        ) -> Result<Flags, SystemException> {
            static OPERATION: Operation = Operation::new("pass_flags");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_flags(f, l, c);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| Cdr::decode(d);
            this.call(&OPERATION, results, &|e| {
                e.write_len(f.len())?;
                e.write_bools(f);
                e.write_len(l.len())?;
                for item in l {
                    e.write_char(*item)?;
                }
                e.write_len_bounded(c.len(), 3)?;
                Cdr::encode_all(c, e)
            })
        }

        pub fn pass_matrix(
            &self,
            m: &Matrix,
            p: &[u8; 4096],
            b: &[String; 300],
            c: &Code,
            l: &Lines,
            bc: &[char; 2000],
        ) -> Result<(Matrix, Lines), SystemException> {
            static OPERATION: Operation = Operation::new("pass_matrix");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_matrix(m, p, b, c, l, bc);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Matrix = Cdr::decode(d)?;
                let l: Lines = Cdr::decode(d)?;
                Ok((result, l))
            };
            this.call(&OPERATION, results, &|e| {
                Cdr::encode(m, e)?;
                Cdr::encode(p, e)?;
                Cdr::encode(b, e)?;
                for item in c {
                    e.write_char(*item)?;
                }
                Cdr::encode(l, e)?;
                for item in bc {
                    e.write_wchar(*item)?;
                }
                Ok(())
            })
        }

        pub fn pass_object(
            &self,
            o: Option<&ObjectRef>,
            ps: &[Option<ProbeRef>],
            a: Option<&AliasRef>,
        ) -> Result<(Option<ObjectRef>, Probes), SystemException> {
            static OPERATION: Operation = Operation::new("pass_object");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_object(o, ps, a);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Option<ObjectRef> = read_reference(d)?;
                let out_ps: Probes = {
                    let len = d.read_len(8)?;
                    let mut list: Vec<Option<ProbeRef>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        list.push(read_reference(d)?);
                    }
                    list
                };
                Ok((result, out_ps))
            };
            this.call(&OPERATION, results, &|e| {
                write_reference(e, o)?;
                e.write_len(ps.len())?;
                for item in ps {
                    write_reference(e, item.as_ref())?;
                }
                write_reference(e, a)
            })
        }

        pub fn wide(&self, w: &str, c: char, n: char, s: &str) -> Result<String, SystemException> {
            static OPERATION: Operation = Operation::new("wide");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.wide(w, c, n, s);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| d.read_wstring();
            this.call(&OPERATION, results, &|e| {
                e.write_wstr(w)?;
                e.write_wchar(c)?;
                e.write_char(n)?;
                e.write_bounded_str(s, 10)
            })
        }

        pub fn pass_colour(
            &self,
            c: Colour,
            s: probe::State,
            i: &probe::Inner,
            b: bool,
            f: f32,
            ll: i64,
        ) -> Result<Colour, SystemException> {
            static OPERATION: Operation = Operation::new("pass_colour");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_colour(c, s, i, b, f, ll);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| Cdr::decode(d);
            this.call(&OPERATION, results, &|e| {
                Cdr::encode(&c, e)?;
                Cdr::encode(&s, e)?;
                Cdr::encode(i, e)?;
                e.write_bool(b);
                e.write_f32(f);
                e.write_i64(ll);
                Ok(())
            })
        }

        pub fn pass_precise(
            &self,
            p: LongDouble,
            s: &[Precise],
        ) -> Result<Precise, SystemException> {
            static OPERATION: Operation = Operation::new("pass_precise");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_precise(p, s);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| Cdr::decode(d);
            this.call(&OPERATION, results, &|e| {
                Cdr::encode(&p, e)?;
                e.write_len(s.len())?;
                Cdr::encode_all(s, e)
            })
        }

        pub fn pass_tree(&self, t: &Tree, ts: &[Tree]) -> Result<Tree, SystemException> {
            static OPERATION: Operation = Operation::new("pass_tree");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_tree(t, ts);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| Cdr::decode(d);
            this.call(&OPERATION, results, &|e| {
                Cdr::encode(t, e)?;
                e.write_len(ts.len())?;
                Cdr::encode_all(ts, e)
            })
        }

        pub fn a_long_name_to_make_lines_break(
            &self,
            the_first_parameter: u64,
            the_second_parameter: &str,
        ) -> Result<Variable, SystemException> {
            static OPERATION: Operation = Operation::new("a_long_name_to_make_lines_break");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| {
                servant.a_long_name_to_make_lines_break(the_first_parameter, the_second_parameter)
            };
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| Cdr::decode(d);
            this.call(&OPERATION, results, &|e| {
                e.write_u64(the_first_parameter);
                e.write_str(the_second_parameter)
            })
        }

        pub fn get_second(&self, e: i32, d: &str) -> Result<(i32, i32, String), SystemException> {
            static OPERATION: Operation = Operation::new("get_second");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Second + 'static)| servant.get_second(e, d);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result = d.read_i32()?;
                let call = d.read_i32()?;
                let d_ = d.read_string()?;
                Ok((result, call, d_))
            };
            this.call(&OPERATION, results, &|e_| {
                e_.write_i32(e);
                e_.write_str(d)
            })
        }
    }

    #[doc(hidden)]
    pub struct ProbeSkeleton(std::sync::Arc<dyn Probe>);

    impl ProbeSkeleton {
        #[doc(hidden)]
        pub fn call(
            servant: &dyn Probe,
            operation: usize,
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            match operation {
                0 => {
                    let d = call.arguments();
                    let s = d.read_str()?;
                    let result = servant.echo(s)?;
                    let e = call.reply();
                    e.write_str(&result)?;
                    Ok(())
                }
                1 => {
                    let result = servant.level()?;
                    let e = call.reply();
                    e.write_i32(result);
                    Ok(())
                }
                2 => {
                    let d = call.arguments();
                    let i: Paths = {
                        let len = d.read_len_bounded(4, 2)?;
                        Cdr::decode_many(len, d)?
                    };
                    let result = servant.pass_paths(&i)?;
                    let e = call.reply();
                    e.write_len_bounded(result.len(), 2)?;
                    Cdr::encode_all(&result, e)?;
                    Ok(())
                }
                3 => {
                    let d = call.arguments();
                    let c: Colour = Cdr::decode(d)?;
                    let s: probe::State = Cdr::decode(d)?;
                    let i: probe::Inner = Cdr::decode(d)?;
                    let b = d.read_bool()?;
                    let f = d.read_f32()?;
                    let ll = d.read_i64()?;
                    let result = servant.pass_colour(c, s, &i, b, f, ll)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Ok(())
                }
                4 => {
                    let d = call.arguments();
                    let p: Option<ProbeRef> = read_reference(d)?;
                    let result = servant.me(p.as_ref())?;
                    let e = call.reply();
                    write_reference(e, result.as_ref())?;
                    Ok(())
                }
                5 => {
                    let d = call.arguments();
                    let len = d.read_len(1)?;
                    let f = d.read_plain(len)?;
                    let len = d.read_len(1)?;
                    let l = d.read_slice_with(len, |d| d.read_char())?;
                    let len = d.read_len_bounded(4, 3)?;
                    let c = d.read_plain(len)?;
                    let result = servant.pass_flags(f, l, c)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Ok(())
                }
                6 => {
                    let d = call.arguments();
                    let level = d.read_i32()?;
                    servant.set_level(level)?;
                    Ok(())
                }
                7 => {
                    let d = call.arguments();
                    let i: Any = Cdr::decode(d)?;
                    let io: Any = Cdr::decode(d)?;
                    let (result, io_, o) = servant.pass_any(&i, &io)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Cdr::encode(&io_, e)?;
                    Cdr::encode(&o, e)?;
                    Ok(())
                }
                8 => {
                    let d = call.arguments();
                    let i: Plain = Cdr::decode(d)?;
                    let io: Plain = Cdr::decode(d)?;
                    let (result, io_, o) = servant.pass_plain(&i, &io)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Cdr::encode(&io_, e)?;
                    Cdr::encode(&o, e)?;
                    Ok(())
                }
                9 => {
                    let d = call.arguments();
                    let the_first_parameter = d.read_u64()?;
                    let the_second_parameter = d.read_str()?;
                    let result = Probe::a_long_name_to_make_lines_break(
                        servant,
                        the_first_parameter,
                        the_second_parameter,
                    )?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Ok(())
                }
                10 => {
                    let d = call.arguments();
                    let code = d.read_i32()?;
                    let outcome = servant.fail_more(code);
                    let (result, text) = match outcome {
                        Ok(outcome) => outcome,
                        Err(error) => return error.raise(call),
                    };
                    let e = call.reply();
                    e.write_i32(result);
                    e.write_str(&text)?;
                    Ok(())
                }
                11 => {
                    let d = call.arguments();
                    let len = d.read_len(24)?;
                    let i = d.read_plain(len)?;
                    let len = d.read_len(24)?;
                    let io = d.read_plain(len)?;
                    let (result, io_) = servant.pass_path(i, io)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Cdr::encode(&io_, e)?;
                    Ok(())
                }
                12 => {
                    let d = call.arguments();
                    let len = d.read_len(4)?;
                    let r#type = d.read_slice_with(len, |d| d.read_str())?;
                    servant.set_type(r#type)?;
                    Ok(())
                }
                13 => {
                    let d = call.arguments();
                    let i = d.read_octets()?;
                    let len = d.read_len_bounded(1, 16)?;
                    let k = d.read_raw(len)?;
                    let io = d.read_octets()?;
                    let (result, io_, o) = servant.pass_blob(i, k, io)?;
                    let e = call.reply();
                    e.write_octets_owned(result)?;
                    e.write_octets_owned(io_)?;
                    e.write_len_bounded(o.len(), 16)?;
                    e.write_raw(&o);
                    Ok(())
                }
                14 => {
                    let d = call.arguments();
                    let code = d.read_i32()?;
                    if let Err(error) = servant.fail(code) {
                        return error.raise(call);
                    }
                    Ok(())
                }
                15 => {
                    let result = servant.r#type()?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Ok(())
                }
                16 => {
                    let d = call.arguments();
                    let i: Variable = Cdr::decode(d)?;
                    let io: Variable = Cdr::decode(d)?;
                    let outcome = servant.pass_variable(&i, &io);
                    let (result, io_, o) = match outcome {
                        Ok(outcome) => outcome,
                        Err(error) => return error.raise(call),
                    };
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Cdr::encode(&io_, e)?;
                    Cdr::encode(&o, e)?;
                    Ok(())
                }
                17 => {
                    let d = call.arguments();
                    let w = d.read_wstr()?;
                    let c = d.read_wchar()?;
                    let n = d.read_char()?;
                    let s = d.read_bounded_str(10)?;
                    let result = servant.wide(w, c, n, s)?;
                    let e = call.reply();
                    e.write_wstr(&result)?;
                    Ok(())
                }
                18 => {
                    let d = call.arguments();
                    let t: Tree = Cdr::decode(d)?;
                    let ts: Trees = Cdr::decode(d)?;
                    let result = servant.pass_tree(&t, &ts)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Ok(())
                }
                19 => {
                    let d = call.arguments();
                    let i: TypeCode = Cdr::decode(d)?;
                    let io: Described = Cdr::decode(d)?;
                    let (result, io_) = servant.pass_type(&i, &io)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Cdr::encode(&io_, e)?;
                    Ok(())
                }
                20 => {
                    let d = call.arguments();
                    let i: Shape = Cdr::decode(d)?;
                    let io: Number = Cdr::decode(d)?;
                    let (result, io_, o) = servant.pass_shape(&i, &io)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Cdr::encode(&io_, e)?;
                    Cdr::encode(&o, e)?;
                    Ok(())
                }
                21 => {
                    let d = call.arguments();
                    let o = d.read_u8()?;
                    let result = servant.cube_octet(o)?;
                    let e = call.reply();
                    e.write_u8(result);
                    Ok(())
                }
                22 => {
                    let d = call.arguments();
                    let m: Matrix = Cdr::decode(d)?;
                    let p: Page = Cdr::decode(d)?;
                    let b: Book = Cdr::decode(d)?;
                    let c: Code = {
                        let mut list: Vec<char> = Vec::with_capacity(4);
                        for _ in 0..4 {
                            list.push(d.read_char()?);
                        }
                        let array = list.try_into();
                        array.map_err(|_| CdrError::Truncated)?
                    };
                    let l: Lines = Cdr::decode(d)?;
                    let bc: BigCode = {
                        let mut list: Vec<char> = Vec::with_capacity(1024);
                        for _ in 0..2000 {
                            list.push(d.read_wchar()?);
                        }
                        let array = list.into_boxed_slice().try_into();
                        array.map_err(|_| CdrError::Truncated)?
                    };
                    let (result, l_) = servant.pass_matrix(&m, &p, &b, &c, &l, &bc)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Cdr::encode(&l_, e)?;
                    Ok(())
                }
                23 => {
                    let d = call.arguments();
                    let n = d.read_i32()?;
                    servant.note(n)?;
                    Ok(())
                }
                24 => {
                    let d = call.arguments();
                    let p: Precise = Cdr::decode(d)?;
                    let len = d.read_len(16)?;
                    let s = d.read_slice_with(len, <Precise as Cdr>::decode)?;
                    let result = servant.pass_precise(p, s)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Ok(())
                }
                25 => {
                    let d = call.arguments();
                    let o: Option<ObjectRef> = read_reference(d)?;
                    let ps: Probes = {
                        let len = d.read_len(8)?;
                        let mut list: Vec<Option<ProbeRef>> = Vec::with_capacity(len.min(1024));
                        for _ in 0..len {
                            list.push(read_reference(d)?);
                        }
                        list
                    };
                    let a: Option<AliasRef> = read_reference(d)?;
                    let (result, out_ps) = servant.pass_object(o.as_ref(), &ps, a.as_ref())?;
                    let e = call.reply();
                    write_reference(e, result.as_ref())?;
                    e.write_len(out_ps.len())?;
                    for item in &out_ps {
                        write_reference(e, item.as_ref())?;
                    }
                    Ok(())
                }
                26 => {
                    let d = call.arguments();
                    let len = d.read_len(4)?;
                    let a = d.read_slice::<i32>(len)?;
                    let result = servant.cube_longs(a)?;
                    let e = call.reply();
                    e.write_len(result.len())?;
                    e.write_slice_owned(result);
                    Ok(())
                }
                27 => {
                    let d = call.arguments();
                    let len = d.read_len(4)?;
                    let i = d.read_slice_with(len, |d| d.read_str())?;
                    let len = d.read_len_bounded(4, 4)?;
                    let w = d.read_slice_with(len, |d| d.read_bounded_wstr(8))?;
                    let len = d.read_len(4)?;
                    let io = d.read_slice_with(len, |d| d.read_str())?;
                    let (result, io_) = servant.pass_names(i, w, io)?;
                    let e = call.reply();
                    Cdr::encode(&result, e)?;
                    Cdr::encode(&io_, e)?;
                    Ok(())
                }
                _ => Err(SystemException::bad_operation()),
            }
        }
    }

    impl Skeleton for ProbeSkeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &[
                "IDL:corelane.test/EveryType/Probe:1.0",
                "IDL:corelane.test/EveryType/Base:1.0",
                "IDL:corelane.test/EveryType/Second:1.0",
            ]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            const NAMES: &[&str] = &[
                "fail_more",
                "echo",
                "pass_matrix",
                "_get_type",
                "pass_any",
                "pass_precise",
                "note",
                "fail",
                "pass_colour",
                "_get_level",
                "pass_path",
                "pass_plain",
                "pass_tree",
                "cube_octet",
                "_set_type",
                "pass_blob",
                "pass_type",
                "pass_object",
                "_set_level",
                "wide",
                "get_second",
                "me",
                "pass_shape",
                "a_long_name_to_make_lines_break",
                "_get_name",
                "nothing",
                "pass_flags",
                "cube_longs",
                "pass_paths",
                "pass_variable",
                "pass_names",
            ];
            const DISPLACEMENTS: &[u16] = &[76, 6, 35, 32, 3, 202, 1, 367];
            static OPERATIONS: OperationTable = OperationTable::new(0, DISPLACEMENTS, NAMES);
            match OPERATIONS.find(operation) {
                Some(0) => Self::call(&*self.0, 10, call),
                Some(1) => Self::call(&*self.0, 0, call),
                Some(2) => Self::call(&*self.0, 22, call),
                Some(3) => Self::call(&*self.0, 15, call),
                Some(4) => Self::call(&*self.0, 7, call),
                Some(5) => Self::call(&*self.0, 24, call),
                Some(6) => Self::call(&*self.0, 23, call),
                Some(7) => Self::call(&*self.0, 14, call),
                Some(8) => Self::call(&*self.0, 3, call),
                Some(9) => Self::call(&*self.0, 1, call),
                Some(10) => Self::call(&*self.0, 11, call),
                Some(11) => Self::call(&*self.0, 8, call),
                Some(12) => Self::call(&*self.0, 18, call),
                Some(13) => Self::call(&*self.0, 21, call),
                Some(14) => Self::call(&*self.0, 12, call),
                Some(15) => Self::call(&*self.0, 13, call),
                Some(16) => Self::call(&*self.0, 19, call),
                Some(17) => Self::call(&*self.0, 25, call),
                Some(18) => Self::call(&*self.0, 6, call),
                Some(19) => Self::call(&*self.0, 17, call),
                Some(20) => SecondSkeleton::call(&*self.0, 0, call),
                Some(21) => Self::call(&*self.0, 4, call),
                Some(22) => Self::call(&*self.0, 20, call),
                Some(23) => Self::call(&*self.0, 9, call),
                Some(24) => BaseSkeleton::call(&*self.0, 1, call),
                Some(25) => BaseSkeleton::call(&*self.0, 0, call),
                Some(26) => Self::call(&*self.0, 5, call),
                Some(27) => Self::call(&*self.0, 26, call),
                Some(28) => Self::call(&*self.0, 2, call),
                Some(29) => Self::call(&*self.0, 16, call),
                Some(30) => Self::call(&*self.0, 27, call),
                _ => Err(SystemException::bad_operation()),
            }
        }

        fn cast<'s>(&'s self, cast: &mut Cast<'s>) {
            cast.offer::<_, dyn Probe>(&self.0, |this| this, |this| this);
            cast.offer::<_, dyn Base>(&self.0, |this| this, |this| this);
            cast.offer::<_, dyn Second>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static PROBE_TYPE for reference ProbeRef = interface("IDL:corelane.test/EveryType/Probe:1.0", "Probe") }

    /// What belongs to `Probe`.
    pub mod probe {
        use corelane::mapping::{Cdr, CdrError, Decoder, Encoder};

        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum State {
            On,
            Off,
        }

        corelane::enumeration! { State { On, Off } }

        corelane::describe! { pub static STATE_TYPE for State = enumeration("IDL:corelane.test/EveryType/Probe/State:1.0", "State", &[
            enumerator("on"),
            enumerator("off"),
        ]) }

        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub struct Inner {
            pub now: State,
        }

        corelane::plain! { Inner { now: State } }

        corelane::describe! { pub static INNER_TYPE for Inner = structure("IDL:corelane.test/EveryType/Probe/Inner:1.0", "Inner", &[
            member("now", &STATE_TYPE),
        ]) }

        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub struct Inside {
            pub now: State,
        }

        impl Cdr for Inside {
            const MIN_SIZE: usize = 4;

            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
                Cdr::encode(&self.now, e)
            }

            fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
                Ok(Self {
                    now: Cdr::decode(d)?,
                })
            }
        }

        corelane::user_exception! { Inside = "IDL:corelane.test/EveryType/Probe/Inside:1.0" }

        corelane::describe! { pub static INSIDE_TYPE for exception Inside = exception("IDL:corelane.test/EveryType/Probe/Inside:1.0", "Inside", &[
            member("now", &STATE_TYPE),
        ]) }

        pub const DEPTH: i16 = 3;

        corelane::raises! {
            /// What the operation may raise.
            pub enum FailError {
                Failed(super::Failed),
            }
        }

        corelane::raises! {
            /// What the operation may raise.
            pub enum FailMoreError {
                Failed(super::Failed),
                Inside(Inside),
                Empty(super::Empty),
            }
        }
    }

    pub type AliasRef = ProbeRef;
    corelane::describe! { pub static ALIAS_TYPE = alias("IDL:corelane.test/EveryType/Alias:1.0", "Alias", &PROBE_TYPE) }
    pub type Probes = Vec<Option<ProbeRef>>;
    corelane::describe! { pub static PROBES_TYPE = alias("IDL:corelane.test/EveryType/Probes:1.0", "Probes", &sequence(&PROBE_TYPE, 0)) }

    pub trait Base: Send + Sync + 'static {
        /// Does nothing.
        /// @param x as it is
        fn nothing(&self) -> Result<(), SystemException>;
        fn name(&self) -> Result<String, SystemException>;

        /// A servant that runs these operations, to be activated.
        fn servant(self) -> Servant
        where
            Self: Sized,
        {
            Base::servant_of(std::sync::Arc::new(self))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(BaseSkeleton(this))
        }
    }

    /// A reference to a [`Base`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct BaseRef(ObjectRef);

    impl Reference for BaseRef {
        const REPOSITORY_ID: &'static str = "IDL:corelane.test/EveryType/Base:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(object)
        }

        fn as_object(&self) -> &ObjectRef {
            &self.0
        }
    }

    impl std::fmt::Display for BaseRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl BaseRef {
        /// Does nothing.
        /// @param x as it is
        pub fn nothing(&self) -> Result<(), SystemException> {
            static OPERATION: Operation = Operation::new("nothing");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Base + 'static)| servant.nothing();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            this.run(&OPERATION, &|_| Ok(()))
        }

        pub fn name(&self) -> Result<String, SystemException> {
            static OPERATION: Operation = Operation::new("_get_name");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Base + 'static)| servant.name();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| d.read_string();
            this.call(&OPERATION, results, &|_| Ok(()))
        }
    }

    #[doc(hidden)]
    pub struct BaseSkeleton(std::sync::Arc<dyn Base>);

    impl BaseSkeleton {
        #[doc(hidden)]
        pub fn call(
            servant: &dyn Base,
            operation: usize,
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            match operation {
                0 => {
                    servant.nothing()?;
                    Ok(())
                }
                1 => {
                    let result = servant.name()?;
                    let e = call.reply();
                    e.write_str(&result)?;
                    Ok(())
                }
                _ => Err(SystemException::bad_operation()),
            }
        }
    }

    impl Skeleton for BaseSkeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &["IDL:corelane.test/EveryType/Base:1.0"]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            const NAMES: &[&str] = &["nothing", "_get_name"];
            const DISPLACEMENTS: &[u16] = &[0];
            static OPERATIONS: OperationTable = OperationTable::new(0, DISPLACEMENTS, NAMES);
            match OPERATIONS.find(operation) {
                Some(operation) => Self::call(&*self.0, operation, call),
                None => Err(SystemException::bad_operation()),
            }
        }

        fn cast<'s>(&'s self, cast: &mut Cast<'s>) {
            cast.offer::<_, dyn Base>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static BASE_TYPE for reference BaseRef = interface("IDL:corelane.test/EveryType/Base:1.0", "Base") }

    pub trait Second: Send + Sync + 'static {
        fn get_second(&self, e: i32, d: &str) -> Result<(i32, i32, String), SystemException>;

        /// A servant that runs these operations, to be activated.
        fn servant(self) -> Servant
        where
            Self: Sized,
        {
            Second::servant_of(std::sync::Arc::new(self))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(SecondSkeleton(this))
        }
    }

    /// A reference to a [`Second`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct SecondRef(ObjectRef);

    impl Reference for SecondRef {
        const REPOSITORY_ID: &'static str = "IDL:corelane.test/EveryType/Second:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(object)
        }

        fn as_object(&self) -> &ObjectRef {
            &self.0
        }
    }

    impl std::fmt::Display for SecondRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl SecondRef {
        pub fn get_second(&self, e: i32, d: &str) -> Result<(i32, i32, String), SystemException> {
            static OPERATION: Operation = Operation::new("get_second");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Second + 'static)| servant.get_second(e, d);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result = d.read_i32()?;
                let call = d.read_i32()?;
                let d_ = d.read_string()?;
                Ok((result, call, d_))
            };
            this.call(&OPERATION, results, &|e_| {
                e_.write_i32(e);
                e_.write_str(d)
            })
        }
    }

    #[doc(hidden)]
    pub struct SecondSkeleton(std::sync::Arc<dyn Second>);

    impl SecondSkeleton {
        #[doc(hidden)]
        pub fn call(
            servant: &dyn Second,
            operation: usize,
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            match operation {
                0 => {
                    let d = call.arguments();
                    let e_ = d.read_i32()?;
                    let d_ = d.read_str()?;
                    let (result, call_, d__) = servant.get_second(e_, d_)?;
                    let e = call.reply();
                    e.write_i32(result);
                    e.write_i32(call_);
                    e.write_str(&d__)?;
                    Ok(())
                }
                _ => Err(SystemException::bad_operation()),
            }
        }
    }

    impl Skeleton for SecondSkeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &["IDL:corelane.test/EveryType/Second:1.0"]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            const NAMES: &[&str] = &["get_second"];
            const DISPLACEMENTS: &[u16] = &[0];
            static OPERATIONS: OperationTable = OperationTable::new(0, DISPLACEMENTS, NAMES);
            match OPERATIONS.find(operation) {
                Some(operation) => Self::call(&*self.0, operation, call),
                None => Err(SystemException::bad_operation()),
            }
        }

        fn cast<'s>(&'s self, cast: &mut Cast<'s>) {
            cast.offer::<_, dyn Second>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static SECOND_TYPE for reference SecondRef = interface("IDL:corelane.test/EveryType/Second:1.0", "Second") }

    pub trait Empty2: Send + Sync + 'static {
        /// A servant that runs these operations, to be activated.
        fn servant(self) -> Servant
        where
            Self: Sized,
        {
            Empty2::servant_of(std::sync::Arc::new(self))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(Empty2Skeleton(this))
        }
    }

    /// A reference to a [`Empty2`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct Empty2Ref(ObjectRef);

    impl Reference for Empty2Ref {
        const REPOSITORY_ID: &'static str = "IDL:corelane.test/EveryType/Empty2:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(object)
        }

        fn as_object(&self) -> &ObjectRef {
            &self.0
        }
    }

    impl std::fmt::Display for Empty2Ref {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    #[doc(hidden)]
    pub struct Empty2Skeleton(std::sync::Arc<dyn Empty2>);

    impl Skeleton for Empty2Skeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &["IDL:corelane.test/EveryType/Empty2:1.0"]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            let (_, _) = (operation, call);
            Err(SystemException::bad_operation())
        }

        fn cast<'s>(&'s self, cast: &mut Cast<'s>) {
            cast.offer::<_, dyn Empty2>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static EMPTY2_TYPE for reference Empty2Ref = interface("IDL:corelane.test/EveryType/Empty2:1.0", "Empty2") }
}
