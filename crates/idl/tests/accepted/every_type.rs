// Made by the IDL compiler of Corelane from every_type.idl. Changes here are lost.

/// Everything that IDL
/// can say about data.
#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::approx_constant, clippy::disallowed_names)]
#[allow(clippy::enum_variant_names, clippy::large_enum_variant)]
#[allow(clippy::len_without_is_empty, clippy::module_inception)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
pub mod every_type {
    use corelane::mapping::{
        At, Cdr, CdrError, Decoder, Encoder, InterfaceQuery, Operation, OperationTable, ServerCall,
        Skeleton, read_reference, write_reference,
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
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Colour {
        #[default]
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
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
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

    #[derive(Clone, Copy, Debug, Default, PartialEq)]
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
            At::member(e.write_char(self.c), "c", e)?;
            e.write_bool(self.b);
            e.write_u8(self.o);
            At::member(Cdr::encode(&self.c1, e), "c1", e)?;
            At::member(Cdr::encode(&self.m, e), "m", e)?;
            for (index, item) in self.c2.iter().enumerate() {
                At::member(At::element(e.write_char(*item), index, e), "c2", e)?;
            }
            At::member(Cdr::encode(&self.p, e), "p", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                s: At::member(d.read_i16(), "s", d)?,
                us: At::member(d.read_u16(), "us", d)?,
                l: At::member(d.read_i32(), "l", d)?,
                ul: At::member(d.read_u32(), "ul", d)?,
                ll: At::member(d.read_i64(), "ll", d)?,
                ull: At::member(d.read_u64(), "ull", d)?,
                f: At::member(d.read_f32(), "f", d)?,
                d: At::member(d.read_f64(), "d", d)?,
                c: At::member(d.read_char(), "c", d)?,
                b: At::member(d.read_bool(), "b", d)?,
                o: At::member(d.read_u8(), "o", d)?,
                c1: At::member(Cdr::decode(d), "c1", d)?,
                m: At::member(Cdr::decode(d), "m", d)?,
                c2: {
                    let mut list: Vec<char> = Vec::with_capacity(4);
                    for _ in 0..4 {
                        let item = At::member(At::element(d.read_char(), list.len(), d), "c2", d)?;
                        list.push(item);
                    }
                    let array = list.try_into();
                    At::member(array.map_err(|_| CdrError::Truncated), "c2", d)?
                },
                p: At::member(Cdr::decode(d), "p", d)?,
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
            At::member(e.write_str(&self.r#type), "type", e)?;
            At::member(e.write_wstr(&self.self_), "self_", e)?;
            At::member(e.write_bounded_str(&self.bounded, 10), "bounded", e)?;
            At::member(Cdr::encode(&self.a_blob, e), "a_blob", e)?;
            At::member(e.write_len_bounded(self.a_key.len(), 16), "a_key", e)?;
            e.write_raw(&self.a_key);
            At::member(Cdr::encode(&self.a_names, e), "a_names", e)?;
            At::member(
                e.write_len_bounded(self.wide_names.len(), 4),
                "wide_names",
                e,
            )?;
            for (index, item) in self.wide_names.iter().enumerate() {
                At::member(
                    At::element(e.write_bounded_wstr(item, 8), index, e),
                    "wide_names",
                    e,
                )?;
            }
            At::member(Cdr::encode(&self.a_flags, e), "a_flags", e)?;
            At::member(e.write_len(self.a_letters.len()), "a_letters", e)?;
            for (index, item) in self.a_letters.iter().enumerate() {
                At::member(At::element(e.write_char(*item), index, e), "a_letters", e)?;
            }
            At::member(e.write_len_bounded(self.a_colours.len(), 3), "a_colours", e)?;
            At::member(Cdr::encode_all(&self.a_colours, e), "a_colours", e)?;
            At::member(Cdr::encode(&self.a_lines, e), "a_lines", e)?;
            At::member(Cdr::encode(&self.a_page, e), "a_page", e)?;
            At::member(Cdr::encode(&self.a_book, e), "a_book", e)?;
            for (index, item) in self.big_code.iter().enumerate() {
                At::member(At::element(e.write_wchar(*item), index, e), "big_code", e)?;
            }
            At::member(e.write_wchar(self.w), "w", e)?;
            At::member(Cdr::encode(&self.a_precise, e), "a_precise", e)?;
            At::member(Cdr::encode(&self.several, e), "several", e)?;
            At::member(e.write_len(self.nested.len()), "nested", e)?;
            for item in &self.nested {
                At::member(e.write_len(item.len()), "nested", e)?;
                for (index, item) in item.iter().enumerate() {
                    At::member(At::element(e.write_wchar(*item), index, e), "nested", e)?;
                }
            }
            At::member(
                write_reference(e, self.any_object.as_ref()),
                "any_object",
                e,
            )?;
            At::member(e.write_len_bounded(self.objects.len(), 2), "objects", e)?;
            for (index, item) in self.objects.iter().enumerate() {
                At::member(
                    At::element(write_reference(e, item.as_ref()), index, e),
                    "objects",
                    e,
                )?;
            }
            At::member(e.write_len_bounded(self.a_paths.len(), 2), "a_paths", e)?;
            At::member(Cdr::encode_all(&self.a_paths, e), "a_paths", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                r#type: At::member(d.read_string(), "type", d)?,
                self_: At::member(d.read_wstring(), "self_", d)?,
                bounded: At::member(d.read_bounded_string(10), "bounded", d)?,
                a_blob: At::member(d.read_octets_owned(), "a_blob", d)?,
                a_key: {
                    let len = At::member(d.read_len_bounded(1, 16), "a_key", d)?;
                    At::member(d.read_raw(len), "a_key", d)?.into()
                },
                a_names: At::member(Cdr::decode(d), "a_names", d)?,
                wide_names: {
                    let len = At::member(d.read_len_bounded(4, 4), "wide_names", d)?;
                    let mut list: Vec<String> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        let item = At::member(
                            At::element(d.read_bounded_wstring(8), list.len(), d),
                            "wide_names",
                            d,
                        )?;
                        list.push(item);
                    }
                    list
                },
                a_flags: At::member(Cdr::decode(d), "a_flags", d)?,
                a_letters: {
                    let len = At::member(d.read_len(1), "a_letters", d)?;
                    let mut list: Vec<char> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        let item =
                            At::member(At::element(d.read_char(), list.len(), d), "a_letters", d)?;
                        list.push(item);
                    }
                    list
                },
                a_colours: {
                    let len = At::member(d.read_len_bounded(4, 3), "a_colours", d)?;
                    At::member(Cdr::decode_many(len, d), "a_colours", d)?
                },
                a_lines: At::member(Cdr::decode(d), "a_lines", d)?,
                a_page: At::member(Cdr::decode(d), "a_page", d)?,
                a_book: At::member(Cdr::decode(d), "a_book", d)?,
                big_code: {
                    let mut list: Vec<char> = Vec::with_capacity(1024);
                    for _ in 0..2000 {
                        let item =
                            At::member(At::element(d.read_wchar(), list.len(), d), "big_code", d)?;
                        list.push(item);
                    }
                    let array = list.into_boxed_slice().try_into();
                    array.map_err(|_| CdrError::Truncated)?
                },
                w: At::member(d.read_wchar(), "w", d)?,
                a_precise: At::member(Cdr::decode(d), "a_precise", d)?,
                several: At::member(Cdr::decode(d), "several", d)?,
                nested: {
                    let len = At::member(d.read_len(4), "nested", d)?;
                    let mut list: Vec<Vec<char>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        list.push({
                            let len = At::member(d.read_len(1), "nested", d)?;
                            let mut list: Vec<char> = Vec::with_capacity(len.min(1024));
                            for _ in 0..len {
                                let item = At::member(
                                    At::element(d.read_wchar(), list.len(), d),
                                    "nested",
                                    d,
                                )?;
                                list.push(item);
                            }
                            list
                        });
                    }
                    list
                },
                any_object: At::member(read_reference(d), "any_object", d)?,
                objects: {
                    let len = At::member(d.read_len_bounded(8, 2), "objects", d)?;
                    let mut list: Vec<Option<ObjectRef>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        let item = At::member(
                            At::element(read_reference(d), list.len(), d),
                            "objects",
                            d,
                        )?;
                        list.push(item);
                    }
                    list
                },
                a_paths: {
                    let len = At::member(d.read_len_bounded(4, 2), "a_paths", d)?;
                    At::member(Cdr::decode_many(len, d), "a_paths", d)?
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

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Tree {
        pub value: i32,
        pub children: Trees,
    }

    impl Cdr for Tree {
        const MIN_SIZE: usize = 8;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_i32(self.value);
            At::member(Cdr::encode(&self.children, e), "children", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                value: At::member(d.read_i32(), "value", d)?,
                children: At::member(Cdr::decode(d), "children", d)?,
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
                    At::member(Cdr::encode(value, e), "a_point", e)?;
                }
                Self::Name(value) => {
                    At::member(e.write_str(value), "name", e)?;
                }
                Self::List(value) => {
                    At::member(e.write_len(value.len()), "list", e)?;
                    for (index, item) in value.iter().enumerate() {
                        At::member(At::element(e.write_wstr(item), index, e), "list", e)?;
                    }
                }
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator: Colour = Cdr::decode(d)?;
            match discriminator {
                Colour::Red => Ok(Self::APoint(At::member(Cdr::decode(d), "a_point", d)?)),
                Colour::Green => Ok(Self::Name(At::member(d.read_string(), "name", d)?)),
                Colour::DeepBlue => {
                    let value = {
                        let len = At::member(d.read_len(4), "list", d)?;
                        let mut list: Vec<String> = Vec::with_capacity(len.min(1024));
                        for _ in 0..len {
                            let item = At::member(
                                At::element(d.read_wstring(), list.len(), d),
                                "list",
                                d,
                            )?;
                            list.push(item);
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
                    At::member(Cdr::encode(value, e), "other", e)?;
                }
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_i32()?;
            match discriminator {
                -3 | 1 | 2 => {
                    let value = At::member(d.read_i32(), "small", d)?;
                    Ok(Self::Small(discriminator, value))
                }
                4 => Ok(Self::Large(At::member(d.read_f64(), "large", d)?)),
                _ => {
                    let value = At::member(d.read_octets_owned(), "other", d)?;
                    Ok(Self::Other(discriminator, value))
                }
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
                    At::member(Cdr::encode(value, e), "value", e)?;
                }
                Self::Other(_) => {}
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_bool()?;
            match discriminator {
                true => Ok(Self::Value(At::member(Cdr::decode(d), "value", d)?)),
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
                    At::member(Cdr::encode(value, e), "last", e)?;
                }
                Self::Other(_) => {}
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_char()?;
            match discriminator {
                '\'' | 'a' => {
                    let value = At::member(d.read_u8(), "first", d)?;
                    Ok(Self::First(discriminator, value))
                }
                'z' => Ok(Self::Last(At::member(Cdr::decode(d), "last", d)?)),
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
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            #[default]
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
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Described {
        pub value: Any,
        pub r#type: TypeCode,
        pub more: Vec<Any>,
        pub pair: [Any; 2],
    }

    impl Cdr for Described {
        const MIN_SIZE: usize = 20;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            At::member(Cdr::encode(&self.value, e), "value", e)?;
            At::member(Cdr::encode(&self.r#type, e), "type", e)?;
            At::member(Cdr::encode(&self.more, e), "more", e)?;
            At::member(Cdr::encode(&self.pair, e), "pair", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                value: At::member(Cdr::decode(d), "value", d)?,
                r#type: At::member(Cdr::decode(d), "type", d)?,
                more: At::member(Cdr::decode(d), "more", d)?,
                pair: At::member(Cdr::decode(d), "pair", d)?,
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
                    At::member(Cdr::encode(value, e), "value", e)?;
                }
                Self::Type(value) => {
                    At::member(Cdr::encode(value, e), "type", e)?;
                }
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_bool()?;
            match discriminator {
                true => Ok(Self::Value(At::member(Cdr::decode(d), "value", d)?)),
                false => Ok(Self::Type(At::member(Cdr::decode(d), "type", d)?)),
            }
        }
    }

    corelane::describe! { pub static PERHAPS_TYPE for Perhaps = union("IDL:corelane.test/EveryType/Perhaps:1.0", "Perhaps", BOOLEAN, -1, &[
        arm(1, "value", ANY),
        arm(0, "type", TYPE_CODE),
    ]) }

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
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

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Failed {
        pub code: i32,
        pub why: String,
    }

    impl Cdr for Failed {
        const MIN_SIZE: usize = 8;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_i32(self.code);
            At::member(e.write_str(&self.why), "why", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                code: At::member(d.read_i32(), "code", d)?,
                why: At::member(d.read_string(), "why", d)?,
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
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            Probe::servant_of(std::sync::Arc::new(this))
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

    corelane::reference_methods! { ProbeRef }

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
            static OPERATION: Operation<'_> = Operation::new("_get_level");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.level();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(d.read_i32(), "result", d);
            this.call(&OPERATION, results, &|_| Ok(()))
        }

        /// Sets `level`.
        pub fn set_level(&self, level: i32) -> Result<(), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("_set_level");
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
            static OPERATION: Operation<'_> = Operation::new("_get_type");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.r#type();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(Cdr::decode(d), "result", d);
            this.call(&OPERATION, results, &|_| Ok(()))
        }

        /// Sets `type`.
        pub fn set_type(&self, r#type: &[&str]) -> Result<(), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("_set_type");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.set_type(r#type);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            this.run(&OPERATION, &|e| {
                At::member(e.write_len(r#type.len()), "type", e)?;
                for (index, item) in r#type.iter().enumerate() {
                    At::member(At::element(e.write_str(item), index, e), "type", e)?;
                }
                Ok(())
            })
        }

        pub fn cube_octet(&self, o: u8) -> Result<u8, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("cube_octet");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.cube_octet(o);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(d.read_u8(), "result", d);
            this.call(&OPERATION, results, &|e| {
                e.write_u8(o);
                Ok(())
            })
        }

        pub fn cube_longs(&self, a: &[i32]) -> Result<Longs, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("cube_longs");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.cube_longs(a);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(Cdr::decode(d), "b", d);
            this.call(&OPERATION, results, &|e| {
                At::member(e.write_len(a.len()), "a", e)?;
                e.write_slice_borrowed(a);
                Ok(())
            })
        }

        pub fn echo(&self, s: &str) -> Result<String, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.echo(s);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(d.read_string(), "result", d);
            this.call(&OPERATION, results, &|e| At::member(e.write_str(s), "s", e))
        }

        pub fn me(&self, p: Option<&ProbeRef>) -> Result<Option<ProbeRef>, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("me");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.me(p);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(read_reference(d), "result", d);
            this.call(&OPERATION, results, &|e| {
                At::member(write_reference(e, p), "p", e)
            })
        }

        pub fn pass_any(&self, i: &Any, io: &Any) -> Result<(Any, Any, TypeCode), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("pass_any");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_any(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Any = At::member(Cdr::decode(d), "result", d)?;
                let io: Any = At::member(Cdr::decode(d), "io", d)?;
                let o: TypeCode = At::member(Cdr::decode(d), "o", d)?;
                Ok((result, io, o))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(i, e), "i", e)?;
                At::member(Cdr::encode(io, e), "io", e)
            })
        }

        pub fn pass_type(
            &self,
            i: &TypeCode,
            io: &Described,
        ) -> Result<(TypeCode, Described), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("pass_type");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_type(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: TypeCode = At::member(Cdr::decode(d), "result", d)?;
                let io: Described = At::member(Cdr::decode(d), "io", d)?;
                Ok((result, io))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(i, e), "i", e)?;
                At::member(Cdr::encode(io, e), "io", e)
            })
        }

        pub fn fail(&self, code: i32) -> Result<(), probe::FailError> {
            static OPERATION: Operation<'_> = Operation::new("fail");
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
            static OPERATION: Operation<'_> = Operation::new("fail_more");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.fail_more(code);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result = At::member(d.read_i32(), "result", d)?;
                let text = At::member(d.read_string(), "text", d)?;
                Ok((result, text))
            };
            this.call_raising(&OPERATION, results, &|e| {
                e.write_i32(code);
                Ok(())
            })
        }

        pub fn note(&self, n: i32) -> Result<(), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("note");
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
            static OPERATION: Operation<'_> = Operation::new("pass_plain");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_plain(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Plain = At::member(Cdr::decode(d), "result", d)?;
                let io: Plain = At::member(Cdr::decode(d), "io", d)?;
                let o: Plain = At::member(Cdr::decode(d), "o", d)?;
                Ok((result, io, o))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(i, e), "i", e)?;
                At::member(Cdr::encode(io, e), "io", e)
            })
        }

        pub fn pass_variable(
            &self,
            i: &Variable,
            io: &Variable,
        ) -> Result<(Variable, Variable, Variable), probe::FailError> {
            static OPERATION: Operation<'_> = Operation::new("pass_variable");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_variable(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Variable = At::member(Cdr::decode(d), "result", d)?;
                let io: Variable = At::member(Cdr::decode(d), "io", d)?;
                let o: Variable = At::member(Cdr::decode(d), "o", d)?;
                Ok((result, io, o))
            };
            this.call_raising(&OPERATION, results, &|e| {
                At::member(Cdr::encode(i, e), "i", e)?;
                At::member(Cdr::encode(io, e), "io", e)
            })
        }

        pub fn pass_path(
            &self,
            i: &[Point],
            io: &[Point],
        ) -> Result<(Path, Path), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("pass_path");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_path(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Path = At::member(Cdr::decode(d), "result", d)?;
                let io: Path = At::member(Cdr::decode(d), "io", d)?;
                Ok((result, io))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(e.write_len(i.len()), "i", e)?;
                At::member(Cdr::encode_all(i, e), "i", e)?;
                At::member(e.write_len(io.len()), "io", e)?;
                At::member(Cdr::encode_all(io, e), "io", e)
            })
        }

        pub fn pass_paths(&self, i: &[Path]) -> Result<Paths, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("pass_paths");
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
                    let len = At::member(d.read_len_bounded(4, 2), "result", d)?;
                    Cdr::decode_many(len, d)?
                };
                Ok(result)
            };
            this.call(&OPERATION, results, &|e| {
                At::member(e.write_len_bounded(i.len(), 2), "i", e)?;
                At::member(Cdr::encode_all(i, e), "i", e)
            })
        }

        pub fn pass_shape(
            &self,
            i: &Shape,
            io: &Number,
        ) -> Result<(Shape, Number, Maybe), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("pass_shape");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_shape(i, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Shape = At::member(Cdr::decode(d), "result", d)?;
                let io: Number = At::member(Cdr::decode(d), "io", d)?;
                let o: Maybe = At::member(Cdr::decode(d), "o", d)?;
                Ok((result, io, o))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(i, e), "i", e)?;
                At::member(Cdr::encode(io, e), "io", e)
            })
        }

        pub fn pass_blob(
            &self,
            i: &[u8],
            k: &[u8],
            io: &[u8],
        ) -> Result<(Blob, Blob, Key), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("pass_blob");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_blob(i, k, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Blob = At::member(d.read_octets_owned(), "result", d)?;
                let io: Blob = At::member(d.read_octets_owned(), "io", d)?;
                let o: Key = {
                    let len = At::member(d.read_len_bounded(1, 16), "o", d)?;
                    d.read_raw(len)?.into()
                };
                Ok((result, io, o))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(e.write_octets(i), "i", e)?;
                At::member(e.write_len_bounded(k.len(), 16), "k", e)?;
                e.write_slice_borrowed(k);
                At::member(e.write_octets(io), "io", e)
            })
        }

        pub fn pass_names(
            &self,
            i: &[&str],
            w: &[&str],
            io: &[&str],
        ) -> Result<(Names, Names), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("pass_names");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_names(i, w, io);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Names = At::member(Cdr::decode(d), "result", d)?;
                let io: Names = At::member(Cdr::decode(d), "io", d)?;
                Ok((result, io))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(e.write_len(i.len()), "i", e)?;
                for (index, item) in i.iter().enumerate() {
                    At::member(At::element(e.write_str(item), index, e), "i", e)?;
                }
                At::member(e.write_len_bounded(w.len(), 4), "w", e)?;
                for (index, item) in w.iter().enumerate() {
                    At::member(At::element(e.write_bounded_wstr(item, 8), index, e), "w", e)?;
                }
                At::member(e.write_len(io.len()), "io", e)?;
                for (index, item) in io.iter().enumerate() {
                    At::member(At::element(e.write_str(item), index, e), "io", e)?;
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
            static OPERATION: Operation<'_> = Operation::new("pass_flags");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_flags(f, l, c);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(Cdr::decode(d), "result", d);
            this.call(&OPERATION, results, &|e| {
                At::member(e.write_len(f.len()), "f", e)?;
                e.write_bools(f);
                At::member(e.write_len(l.len()), "l", e)?;
                for (index, item) in l.iter().enumerate() {
                    At::member(At::element(e.write_char(*item), index, e), "l", e)?;
                }
                At::member(e.write_len_bounded(c.len(), 3), "c", e)?;
                At::member(Cdr::encode_all(c, e), "c", e)
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
            static OPERATION: Operation<'_> = Operation::new("pass_matrix");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_matrix(m, p, b, c, l, bc);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Matrix = At::member(Cdr::decode(d), "result", d)?;
                let l: Lines = At::member(Cdr::decode(d), "l", d)?;
                Ok((result, l))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(m, e), "m", e)?;
                At::member(Cdr::encode(p, e), "p", e)?;
                At::member(Cdr::encode(b, e), "b", e)?;
                for (index, item) in c.iter().enumerate() {
                    At::member(At::element(e.write_char(*item), index, e), "c", e)?;
                }
                At::member(Cdr::encode(l, e), "l", e)?;
                for (index, item) in bc.iter().enumerate() {
                    At::member(At::element(e.write_wchar(*item), index, e), "bc", e)?;
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
            static OPERATION: Operation<'_> = Operation::new("pass_object");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_object(o, ps, a);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Option<ObjectRef> = At::member(read_reference(d), "result", d)?;
                let out_ps: Probes = {
                    let len = At::member(d.read_len(8), "out_ps", d)?;
                    let mut list: Vec<Option<ProbeRef>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        let item =
                            At::member(At::element(read_reference(d), list.len(), d), "out_ps", d)?;
                        list.push(item);
                    }
                    list
                };
                Ok((result, out_ps))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(write_reference(e, o), "o", e)?;
                At::member(e.write_len(ps.len()), "ps", e)?;
                for (index, item) in ps.iter().enumerate() {
                    At::member(
                        At::element(write_reference(e, item.as_ref()), index, e),
                        "ps",
                        e,
                    )?;
                }
                At::member(write_reference(e, a), "a", e)
            })
        }

        pub fn wide(&self, w: &str, c: char, n: char, s: &str) -> Result<String, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("wide");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.wide(w, c, n, s);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(d.read_wstring(), "result", d);
            this.call(&OPERATION, results, &|e| {
                At::member(e.write_wstr(w), "w", e)?;
                At::member(e.write_wchar(c), "c", e)?;
                At::member(e.write_char(n), "n", e)?;
                At::member(e.write_bounded_str(s, 10), "s", e)
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
            static OPERATION: Operation<'_> = Operation::new("pass_colour");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_colour(c, s, i, b, f, ll);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(Cdr::decode(d), "result", d);
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(&c, e), "c", e)?;
                At::member(Cdr::encode(&s, e), "s", e)?;
                At::member(Cdr::encode(i, e), "i", e)?;
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
            static OPERATION: Operation<'_> = Operation::new("pass_precise");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_precise(p, s);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(Cdr::decode(d), "result", d);
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(&p, e), "p", e)?;
                At::member(e.write_len(s.len()), "s", e)?;
                At::member(Cdr::encode_all(s, e), "s", e)
            })
        }

        pub fn pass_tree(&self, t: &Tree, ts: &[Tree]) -> Result<Tree, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("pass_tree");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Probe + 'static)| servant.pass_tree(t, ts);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(Cdr::decode(d), "result", d);
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(t, e), "t", e)?;
                At::member(e.write_len(ts.len()), "ts", e)?;
                At::member(Cdr::encode_all(ts, e), "ts", e)
            })
        }

        pub fn a_long_name_to_make_lines_break(
            &self,
            the_first_parameter: u64,
            the_second_parameter: &str,
        ) -> Result<Variable, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("a_long_name_to_make_lines_break");
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
            let results =
                |d: &mut Decoder<'_>| At::member(Cdr::decode(d), "the_third_parameter", d);
            this.call(&OPERATION, results, &|e| {
                e.write_u64(the_first_parameter);
                At::member(e.write_str(the_second_parameter), "the_second_parameter", e)
            })
        }

        pub fn get_second(&self, e: i32, d: &str) -> Result<(i32, i32, String), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("get_second");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Second + 'static)| servant.get_second(e, d);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result = At::member(d.read_i32(), "result", d)?;
                let call = At::member(d.read_i32(), "call", d)?;
                let d_ = At::member(d.read_string(), "d_", d)?;
                Ok((result, call, d_))
            };
            this.call(&OPERATION, results, &|e_| {
                e_.write_i32(e);
                At::member(e_.write_str(d), "d", e_)
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
                    let s = At::argument(d.read_str(), "s", d)?;
                    let result = servant.echo(s)?;
                    let e = call.reply();
                    At::result(e.write_str(&result), "result", e)?;
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
                        let len = At::argument(d.read_len_bounded(4, 2), "i", d)?;
                        Cdr::decode_many(len, d)?
                    };
                    let result = servant.pass_paths(&i)?;
                    let e = call.reply();
                    At::result(e.write_len_bounded(result.len(), 2), "result", e)?;
                    At::result(Cdr::encode_all(&result, e), "result", e)?;
                    Ok(())
                }
                3 => {
                    let d = call.arguments();
                    let c: Colour = At::argument(Cdr::decode(d), "c", d)?;
                    let s: probe::State = At::argument(Cdr::decode(d), "s", d)?;
                    let i: probe::Inner = At::argument(Cdr::decode(d), "i", d)?;
                    let b = At::argument(d.read_bool(), "b", d)?;
                    let f = At::argument(d.read_f32(), "f", d)?;
                    let ll = At::argument(d.read_i64(), "ll", d)?;
                    let result = servant.pass_colour(c, s, &i, b, f, ll)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    Ok(())
                }
                4 => {
                    let d = call.arguments();
                    let p: Option<ProbeRef> = At::argument(read_reference(d), "p", d)?;
                    let result = servant.me(p.as_ref())?;
                    let e = call.reply();
                    At::result(write_reference(e, result.as_ref()), "result", e)?;
                    Ok(())
                }
                5 => {
                    let d = call.arguments();
                    let len = At::argument(d.read_len(1), "f", d)?;
                    let f = At::argument(d.read_plain(len), "f", d)?;
                    let len = At::argument(d.read_len(1), "l", d)?;
                    let l = At::argument(d.read_slice_with(len, |d| d.read_char()), "l", d)?;
                    let len = At::argument(d.read_len_bounded(4, 3), "c", d)?;
                    let c = At::argument(d.read_plain(len), "c", d)?;
                    let result = servant.pass_flags(f, l, c)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    Ok(())
                }
                6 => {
                    let d = call.arguments();
                    let level = At::argument(d.read_i32(), "level", d)?;
                    servant.set_level(level)?;
                    Ok(())
                }
                7 => {
                    let d = call.arguments();
                    let i: Any = At::argument(Cdr::decode(d), "i", d)?;
                    let io: Any = At::argument(Cdr::decode(d), "io", d)?;
                    let (result, io_, o) = servant.pass_any(&i, &io)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&io_, e), "io_", e)?;
                    At::result(Cdr::encode(&o, e), "o", e)?;
                    Ok(())
                }
                8 => {
                    let d = call.arguments();
                    let i: Plain = At::argument(Cdr::decode(d), "i", d)?;
                    let io: Plain = At::argument(Cdr::decode(d), "io", d)?;
                    let (result, io_, o) = servant.pass_plain(&i, &io)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&io_, e), "io_", e)?;
                    At::result(Cdr::encode(&o, e), "o", e)?;
                    Ok(())
                }
                9 => {
                    let d = call.arguments();
                    let the_first_parameter = At::argument(d.read_u64(), "the_first_parameter", d)?;
                    let the_second_parameter =
                        At::argument(d.read_str(), "the_second_parameter", d)?;
                    let result = Probe::a_long_name_to_make_lines_break(
                        servant,
                        the_first_parameter,
                        the_second_parameter,
                    )?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    Ok(())
                }
                10 => {
                    let d = call.arguments();
                    let code = At::argument(d.read_i32(), "code", d)?;
                    let outcome = servant.fail_more(code);
                    let (result, text) = match outcome {
                        Ok(outcome) => outcome,
                        Err(error) => return error.raise(call),
                    };
                    let e = call.reply();
                    e.write_i32(result);
                    At::result(e.write_str(&text), "text", e)?;
                    Ok(())
                }
                11 => {
                    let d = call.arguments();
                    let len = At::argument(d.read_len(24), "i", d)?;
                    let i = At::argument(d.read_plain(len), "i", d)?;
                    let len = At::argument(d.read_len(24), "io", d)?;
                    let io = At::argument(d.read_plain(len), "io", d)?;
                    let (result, io_) = servant.pass_path(i, io)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&io_, e), "io_", e)?;
                    Ok(())
                }
                12 => {
                    let d = call.arguments();
                    let len = At::argument(d.read_len(4), "type", d)?;
                    let r#type = At::argument(d.read_slice_with(len, |d| d.read_str()), "type", d)?;
                    servant.set_type(r#type)?;
                    Ok(())
                }
                13 => {
                    let d = call.arguments();
                    let i = At::argument(d.read_octets(), "i", d)?;
                    let len = At::argument(d.read_len_bounded(1, 16), "k", d)?;
                    let k = At::argument(d.read_raw(len), "k", d)?;
                    let io = At::argument(d.read_octets(), "io", d)?;
                    let (result, io_, o) = servant.pass_blob(i, k, io)?;
                    let e = call.reply();
                    At::result(e.write_octets_owned(result), "result", e)?;
                    At::result(e.write_octets_owned(io_), "io_", e)?;
                    At::result(e.write_len_bounded(o.len(), 16), "o", e)?;
                    e.write_raw(&o);
                    Ok(())
                }
                14 => {
                    let d = call.arguments();
                    let code = At::argument(d.read_i32(), "code", d)?;
                    if let Err(error) = servant.fail(code) {
                        return error.raise(call);
                    }
                    Ok(())
                }
                15 => {
                    let result = servant.r#type()?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    Ok(())
                }
                16 => {
                    let d = call.arguments();
                    let i: Variable = At::argument(Cdr::decode(d), "i", d)?;
                    let io: Variable = At::argument(Cdr::decode(d), "io", d)?;
                    let outcome = servant.pass_variable(&i, &io);
                    let (result, io_, o) = match outcome {
                        Ok(outcome) => outcome,
                        Err(error) => return error.raise(call),
                    };
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&io_, e), "io_", e)?;
                    At::result(Cdr::encode(&o, e), "o", e)?;
                    Ok(())
                }
                17 => {
                    let d = call.arguments();
                    let w = At::argument(d.read_wstr(), "w", d)?;
                    let c = At::argument(d.read_wchar(), "c", d)?;
                    let n = At::argument(d.read_char(), "n", d)?;
                    let s = At::argument(d.read_bounded_str(10), "s", d)?;
                    let result = servant.wide(w, c, n, s)?;
                    let e = call.reply();
                    At::result(e.write_wstr(&result), "result", e)?;
                    Ok(())
                }
                18 => {
                    let d = call.arguments();
                    let t: Tree = At::argument(Cdr::decode(d), "t", d)?;
                    let ts: Trees = At::argument(Cdr::decode(d), "ts", d)?;
                    let result = servant.pass_tree(&t, &ts)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    Ok(())
                }
                19 => {
                    let d = call.arguments();
                    let i: TypeCode = At::argument(Cdr::decode(d), "i", d)?;
                    let io: Described = At::argument(Cdr::decode(d), "io", d)?;
                    let (result, io_) = servant.pass_type(&i, &io)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&io_, e), "io_", e)?;
                    Ok(())
                }
                20 => {
                    let d = call.arguments();
                    let i: Shape = At::argument(Cdr::decode(d), "i", d)?;
                    let io: Number = At::argument(Cdr::decode(d), "io", d)?;
                    let (result, io_, o) = servant.pass_shape(&i, &io)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&io_, e), "io_", e)?;
                    At::result(Cdr::encode(&o, e), "o", e)?;
                    Ok(())
                }
                21 => {
                    let d = call.arguments();
                    let o = At::argument(d.read_u8(), "o", d)?;
                    let result = servant.cube_octet(o)?;
                    let e = call.reply();
                    e.write_u8(result);
                    Ok(())
                }
                22 => {
                    let d = call.arguments();
                    let m: Matrix = At::argument(Cdr::decode(d), "m", d)?;
                    let p: Page = At::argument(Cdr::decode(d), "p", d)?;
                    let b: Book = At::argument(Cdr::decode(d), "b", d)?;
                    let c: Code = {
                        let mut list: Vec<char> = Vec::with_capacity(4);
                        for _ in 0..4 {
                            let item =
                                At::argument(At::element(d.read_char(), list.len(), d), "c", d)?;
                            list.push(item);
                        }
                        let array = list.try_into();
                        array.map_err(|_| CdrError::Truncated)?
                    };
                    let l: Lines = At::argument(Cdr::decode(d), "l", d)?;
                    let bc: BigCode = {
                        let mut list: Vec<char> = Vec::with_capacity(1024);
                        for _ in 0..2000 {
                            let item =
                                At::argument(At::element(d.read_wchar(), list.len(), d), "bc", d)?;
                            list.push(item);
                        }
                        let array = list.into_boxed_slice().try_into();
                        array.map_err(|_| CdrError::Truncated)?
                    };
                    let (result, l_) = servant.pass_matrix(&m, &p, &b, &c, &l, &bc)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&l_, e), "l_", e)?;
                    Ok(())
                }
                23 => {
                    let d = call.arguments();
                    let n = At::argument(d.read_i32(), "n", d)?;
                    servant.note(n)?;
                    Ok(())
                }
                24 => {
                    let d = call.arguments();
                    let p: Precise = At::argument(Cdr::decode(d), "p", d)?;
                    let len = At::argument(d.read_len(16), "s", d)?;
                    let s = At::argument(d.read_slice_with(len, <Precise as Cdr>::decode), "s", d)?;
                    let result = servant.pass_precise(p, s)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    Ok(())
                }
                25 => {
                    let d = call.arguments();
                    let o: Option<ObjectRef> = At::argument(read_reference(d), "o", d)?;
                    let ps: Probes = {
                        let len = At::argument(d.read_len(8), "ps", d)?;
                        let mut list: Vec<Option<ProbeRef>> = Vec::with_capacity(len.min(1024));
                        for _ in 0..len {
                            let item = At::argument(
                                At::element(read_reference(d), list.len(), d),
                                "ps",
                                d,
                            )?;
                            list.push(item);
                        }
                        list
                    };
                    let a: Option<AliasRef> = At::argument(read_reference(d), "a", d)?;
                    let (result, out_ps) = servant.pass_object(o.as_ref(), &ps, a.as_ref())?;
                    let e = call.reply();
                    At::result(write_reference(e, result.as_ref()), "result", e)?;
                    At::result(e.write_len(out_ps.len()), "out_ps", e)?;
                    for (index, item) in out_ps.iter().enumerate() {
                        At::result(
                            At::element(write_reference(e, item.as_ref()), index, e),
                            "out_ps",
                            e,
                        )?;
                    }
                    Ok(())
                }
                26 => {
                    let d = call.arguments();
                    let len = At::argument(d.read_len(4), "a", d)?;
                    let a = At::argument(d.read_slice::<i32>(len), "a", d)?;
                    let result = servant.cube_longs(a)?;
                    let e = call.reply();
                    At::result(e.write_len(result.len()), "result", e)?;
                    e.write_slice_owned(result);
                    Ok(())
                }
                27 => {
                    let d = call.arguments();
                    let len = At::argument(d.read_len(4), "i", d)?;
                    let i = At::argument(d.read_slice_with(len, |d| d.read_str()), "i", d)?;
                    let len = At::argument(d.read_len_bounded(4, 4), "w", d)?;
                    let w =
                        At::argument(d.read_slice_with(len, |d| d.read_bounded_wstr(8)), "w", d)?;
                    let len = At::argument(d.read_len(4), "io", d)?;
                    let io = At::argument(d.read_slice_with(len, |d| d.read_str()), "io", d)?;
                    let (result, io_) = servant.pass_names(i, w, io)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&io_, e), "io_", e)?;
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

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn Probe>(&self.0, |this| this, |this| this);
            query.provide::<_, dyn Base>(&self.0, |this| this, |this| this);
            query.provide::<_, dyn Second>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static PROBE_TYPE for reference ProbeRef = interface("IDL:corelane.test/EveryType/Probe:1.0", "Probe") }

    /// What belongs to `Probe`.
    pub mod probe {
        use corelane::mapping::{At, Cdr, CdrError, Decoder, Encoder};

        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum State {
            #[default]
            On,
            Off,
        }

        corelane::enumeration! { State { On, Off } }

        corelane::describe! { pub static STATE_TYPE for State = enumeration("IDL:corelane.test/EveryType/Probe/State:1.0", "State", &[
            enumerator("on"),
            enumerator("off"),
        ]) }

        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Inner {
            pub now: State,
        }

        corelane::plain! { Inner { now: State } }

        corelane::describe! { pub static INNER_TYPE for Inner = structure("IDL:corelane.test/EveryType/Probe/Inner:1.0", "Inner", &[
            member("now", &STATE_TYPE),
        ]) }

        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
        pub struct Inside {
            pub now: State,
        }

        impl Cdr for Inside {
            const MIN_SIZE: usize = 4;

            fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
                At::member(Cdr::encode(&self.now, e), "now", e)
            }

            fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
                Ok(Self {
                    now: At::member(Cdr::decode(d), "now", d)?,
                })
            }
        }

        corelane::user_exception! { Inside = "IDL:corelane.test/EveryType/Probe/Inside:1.0" }

        corelane::describe! { pub static INSIDE_TYPE for exception Inside = exception("IDL:corelane.test/EveryType/Probe/Inside:1.0", "Inside", &[
            member("now", &STATE_TYPE),
        ]) }

        pub const DEPTH: i16 = 3;

        corelane::raises! {
            /// The exceptions of an operation.
            pub enum FailError {
                Failed(super::Failed),
            }
        }

        corelane::raises! {
            /// The exceptions of an operation.
            pub enum FailMoreError {
                Failed(super::Failed),
                Inside(Inside),
                Empty(super::Empty),
            }
        }

        /// The exceptions of an operation, which another operation has too.
        pub type PassVariableError = FailError;
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
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            Base::servant_of(std::sync::Arc::new(this))
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

    corelane::reference_methods! { BaseRef }

    impl std::fmt::Display for BaseRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl BaseRef {
        /// Does nothing.
        /// @param x as it is
        pub fn nothing(&self) -> Result<(), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("nothing");
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
            static OPERATION: Operation<'_> = Operation::new("_get_name");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Base + 'static)| servant.name();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(d.read_string(), "result", d);
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
                    At::result(e.write_str(&result), "result", e)?;
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

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn Base>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static BASE_TYPE for reference BaseRef = interface("IDL:corelane.test/EveryType/Base:1.0", "Base") }

    pub trait Second: Send + Sync + 'static {
        fn get_second(&self, e: i32, d: &str) -> Result<(i32, i32, String), SystemException>;

        /// A servant that runs these operations, to be activated.
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            Second::servant_of(std::sync::Arc::new(this))
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

    corelane::reference_methods! { SecondRef }

    impl std::fmt::Display for SecondRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl SecondRef {
        pub fn get_second(&self, e: i32, d: &str) -> Result<(i32, i32, String), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("get_second");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Second + 'static)| servant.get_second(e, d);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result = At::member(d.read_i32(), "result", d)?;
                let call = At::member(d.read_i32(), "call", d)?;
                let d_ = At::member(d.read_string(), "d_", d)?;
                Ok((result, call, d_))
            };
            this.call(&OPERATION, results, &|e_| {
                e_.write_i32(e);
                At::member(e_.write_str(d), "d", e_)
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
                    let e_ = At::argument(d.read_i32(), "e_", d)?;
                    let d_ = At::argument(d.read_str(), "d_", d)?;
                    let (result, call_, d__) = servant.get_second(e_, d_)?;
                    let e = call.reply();
                    e.write_i32(result);
                    e.write_i32(call_);
                    At::result(e.write_str(&d__), "d__", e)?;
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

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn Second>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static SECOND_TYPE for reference SecondRef = interface("IDL:corelane.test/EveryType/Second:1.0", "Second") }

    pub trait Empty2: Send + Sync + 'static {
        /// A servant that runs these operations, to be activated.
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            Empty2::servant_of(std::sync::Arc::new(this))
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

    corelane::reference_methods! { Empty2Ref }

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

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn Empty2>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static EMPTY2_TYPE for reference Empty2Ref = interface("IDL:corelane.test/EveryType/Empty2:1.0", "Empty2") }
}
