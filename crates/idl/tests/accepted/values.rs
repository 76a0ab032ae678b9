// Made by the IDL compiler of Corelane from values.idl. Changes here are lost.

#[allow(dead_code, missing_docs, unreachable_pub, unused_qualifications)]
#[allow(clippy::approx_constant, clippy::disallowed_names)]
#[allow(clippy::enum_variant_names, clippy::large_enum_variant)]
#[allow(clippy::len_without_is_empty, clippy::module_inception)]
#[allow(clippy::new_ret_no_self, clippy::pedantic, clippy::result_large_err)]
#[allow(clippy::should_implement_trait, clippy::too_many_arguments)]
#[allow(clippy::type_complexity, clippy::upper_case_acronyms)]
#[allow(clippy::wrong_self_convention)]
pub mod values {
    use corelane::mapping::{
        At, Cdr, CdrError, Decoder, Encoder, InterfaceQuery, Operation, OperationTable, ServerCall,
        Skeleton, ValueType, read_abstract, read_local, read_value, write_abstract, write_local,
        write_value,
    };
    use corelane::{
        Abstract, AnyValueRef, Fixed, Implementation, Local, Native, ObjectRef, Reference, Servant,
        SystemException, ValueRef,
    };

    pub type Money = Fixed<9, 4>;
    corelane::describe! { pub static MONEY_TYPE = alias("IDL:corelane.test/Values/Money:1.0", "Money", &fixed(9, 4)) }
    pub type Moneys = Vec<Money>;
    corelane::describe! { pub static MONEYS_TYPE = alias("IDL:corelane.test/Values/Moneys:1.0", "Moneys", &sequence(&MONEY_TYPE, 0)) }
    pub const TENTH: Fixed<1, 1> = Fixed::constant(1);
    pub const PRICE: Money = Fixed::constant(199900);

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Account {
        pub balance: Money,
        pub number: Fixed<31, 0>,
    }

    impl Cdr for Account {
        const MIN_SIZE: usize = 21;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            At::member(Cdr::encode(&self.balance, e), "balance", e)?;
            At::member(Cdr::encode(&self.number, e), "number", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                balance: At::member(Cdr::decode(d), "balance", d)?,
                number: At::member(Cdr::decode(d), "number", d)?,
            })
        }
    }

    corelane::describe! { pub static ACCOUNT_TYPE for Account = structure("IDL:corelane.test/Values/Account:1.0", "Account", &[
        member("balance", &MONEY_TYPE),
        member("number", &fixed(31, 0)),
    ]) }

    corelane::bit_mask! {
        pub struct Rights(u8) {
            READ = 0,
            WRITE = 3,
            TYPE = 4,
        }
    }

    corelane::bit_mask! {
        pub struct Wide(u32) {
            LAST = 31,
        }
    }

    corelane::bit_set! {
        /// Parts of a word.
        pub struct Word(u16) {
            low / with_low: u8 = 0, 3;
            flag / with_flag: bool = 3, 1;
            delta / with_delta: i16 = 8, 5;
        }
    }

    corelane::bit_set! {
        pub struct Longer(u64) {
            low / with_low: u8 = 0, 3;
            flag / with_flag: bool = 3, 1;
            delta / with_delta: i16 = 8, 5;
            rest / with_rest: u32 = 13, 20;
        }
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Small {
        pub a: i8,
        pub b: u8,
        pub c: i16,
        pub d: u64,
        pub allowed: Rights,
        pub packed: Word,
    }

    impl Cdr for Small {
        const MIN_SIZE: usize = 15;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_i8(self.a);
            e.write_u8(self.b);
            e.write_i16(self.c);
            e.write_u64(self.d);
            At::member(Cdr::encode(&self.allowed, e), "allowed", e)?;
            At::member(Cdr::encode(&self.packed, e), "packed", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                a: At::member(d.read_i8(), "a", d)?,
                b: At::member(d.read_u8(), "b", d)?,
                c: At::member(d.read_i16(), "c", d)?,
                d: At::member(d.read_u64(), "d", d)?,
                allowed: At::member(Cdr::decode(d), "allowed", d)?,
                packed: At::member(Cdr::decode(d), "packed", d)?,
            })
        }
    }

    corelane::describe! { pub static SMALL_TYPE for Small = structure("IDL:corelane.test/Values/Small:1.0", "Small", &[
        member("a", OCTET),
        member("b", OCTET),
        member("c", SHORT),
        member("d", ULONG_LONG),
        member("allowed", OCTET),
        member("packed", USHORT),
    ]) }

    /// Members of the base come first.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Larger {
        pub a: i8,
        pub b: u8,
        pub c: i16,
        pub d: u64,
        pub allowed: Rights,
        pub packed: Word,
        pub name: String,
    }

    impl Cdr for Larger {
        const MIN_SIZE: usize = 19;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_i8(self.a);
            e.write_u8(self.b);
            e.write_i16(self.c);
            e.write_u64(self.d);
            At::member(Cdr::encode(&self.allowed, e), "allowed", e)?;
            At::member(Cdr::encode(&self.packed, e), "packed", e)?;
            At::member(e.write_str(&self.name), "name", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                a: At::member(d.read_i8(), "a", d)?,
                b: At::member(d.read_u8(), "b", d)?,
                c: At::member(d.read_i16(), "c", d)?,
                d: At::member(d.read_u64(), "d", d)?,
                allowed: At::member(Cdr::decode(d), "allowed", d)?,
                packed: At::member(Cdr::decode(d), "packed", d)?,
                name: At::member(d.read_string(), "name", d)?,
            })
        }
    }

    corelane::describe! { pub static LARGER_TYPE for Larger = structure("IDL:corelane.test/Values/Larger:1.0", "Larger", &[
        member("a", OCTET),
        member("b", OCTET),
        member("c", SHORT),
        member("d", ULONG_LONG),
        member("allowed", OCTET),
        member("packed", USHORT),
        member("name", STRING),
    ]) }

    pub type Ages = std::collections::BTreeMap<String, i32>;
    corelane::describe! { pub static AGES_TYPE = alias("IDL:corelane.test/Values/Ages:1.0", "Ages", &sequence(&structure("", "", &[member("key", STRING), member("value", LONG)]), 0)) }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Maps {
        pub by_name: Ages,
        pub nested: std::collections::BTreeMap<i16, Ages>,
        pub by_number: Vec<(f64, Word)>,
        pub letters: std::collections::BTreeMap<i32, char>,
    }

    impl Cdr for Maps {
        const MIN_SIZE: usize = 16;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            At::member(e.write_len(self.by_name.len()), "by_name", e)?;
            for (key, value) in &self.by_name {
                At::member(e.write_str(key), "by_name", e)?;
                e.write_i32(*value);
            }
            At::member(e.write_len_bounded(self.nested.len(), 4), "nested", e)?;
            for (key, value) in &self.nested {
                e.write_i16(*key);
                At::member(e.write_len(value.len()), "nested", e)?;
                for (key, value) in value {
                    At::member(e.write_str(key), "nested", e)?;
                    e.write_i32(*value);
                }
            }
            At::member(e.write_len(self.by_number.len()), "by_number", e)?;
            for (key, value) in &self.by_number {
                e.write_f64(*key);
                At::member(Cdr::encode(value, e), "by_number", e)?;
            }
            At::member(e.write_len(self.letters.len()), "letters", e)?;
            for (key, value) in &self.letters {
                e.write_i32(*key);
                At::member(e.write_wchar(*value), "letters", e)?;
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                by_name: {
                    let len = At::member(d.read_len(8), "by_name", d)?;
                    let mut map = std::collections::BTreeMap::new();
                    At::member(d.enter(), "by_name", d)?;
                    for _ in 0..len {
                        let key = At::member(d.read_string(), "by_name", d)?;
                        let value = At::member(d.read_i32(), "by_name", d)?;
                        map.insert(key, value);
                    }
                    d.leave();
                    map
                },
                nested: {
                    let len = At::member(d.read_len_bounded(6, 4), "nested", d)?;
                    let mut map = std::collections::BTreeMap::new();
                    At::member(d.enter(), "nested", d)?;
                    for _ in 0..len {
                        let key = At::member(d.read_i16(), "nested", d)?;
                        let value: Ages = {
                            let len = At::member(d.read_len(8), "nested", d)?;
                            let mut map = std::collections::BTreeMap::new();
                            At::member(d.enter(), "nested", d)?;
                            for _ in 0..len {
                                let key = At::member(d.read_string(), "nested", d)?;
                                let value = At::member(d.read_i32(), "nested", d)?;
                                map.insert(key, value);
                            }
                            d.leave();
                            map
                        };
                        map.insert(key, value);
                    }
                    d.leave();
                    map
                },
                by_number: {
                    let len = At::member(d.read_len(10), "by_number", d)?;
                    let mut map = Vec::new();
                    At::member(d.enter(), "by_number", d)?;
                    for _ in 0..len {
                        let key = At::member(d.read_f64(), "by_number", d)?;
                        let value: Word = At::member(Cdr::decode(d), "by_number", d)?;
                        map.push((key, value));
                    }
                    d.leave();
                    map
                },
                letters: {
                    let len = At::member(d.read_len(5), "letters", d)?;
                    let mut map = std::collections::BTreeMap::new();
                    At::member(d.enter(), "letters", d)?;
                    for _ in 0..len {
                        let key = At::member(d.read_i32(), "letters", d)?;
                        let value = At::member(d.read_wchar(), "letters", d)?;
                        map.insert(key, value);
                    }
                    d.leave();
                    map
                },
            })
        }
    }

    corelane::describe! { pub static MAPS_TYPE for Maps = structure("IDL:corelane.test/Values/Maps:1.0", "Maps", &[
        member("by_name", &AGES_TYPE),
        member("nested", &sequence(&structure("", "", &[member("key", SHORT), member("value", &AGES_TYPE)]), 4)),
        member("by_number", &sequence(&structure("", "", &[member("key", DOUBLE), member("value", USHORT)]), 0)),
        member("letters", &sequence(&structure("", "", &[member("key", LONG), member("value", WCHAR)]), 0)),
    ]) }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub enum ByLetter {
        Number(i32),
        Text(String),
        /// No member: the discriminator has a value without a label.
        Other(char),
    }

    impl ByLetter {
        /// The value that chooses the member.
        pub fn discriminator(&self) -> char {
            match self {
                Self::Number(_) => 'a',
                Self::Text(_) => '€',
                Self::Other(discriminator) => *discriminator,
            }
        }
    }

    impl Cdr for ByLetter {
        const MIN_SIZE: usize = 1;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            let chosen = match self {
                Self::Other(discriminator) => !matches!(discriminator, 'a' | '€'),
                _ => true,
            };
            if !chosen {
                return Err(CdrError::BadDiscriminator);
            }
            e.write_wchar(self.discriminator())?;
            match self {
                Self::Number(value) => {
                    e.write_i32(*value);
                }
                Self::Text(value) => {
                    At::member(e.write_str(value), "text", e)?;
                }
                Self::Other(_) => {}
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_wchar()?;
            match discriminator {
                'a' => Ok(Self::Number(At::member(d.read_i32(), "number", d)?)),
                '€' => Ok(Self::Text(At::member(d.read_string(), "text", d)?)),
                _ => Ok(Self::Other(discriminator)),
            }
        }
    }

    corelane::describe! { pub static BY_LETTER_TYPE for ByLetter = union("IDL:corelane.test/Values/ByLetter:1.0", "ByLetter", WCHAR, -1, &[
        arm(97, "number", LONG),
        arm(8364, "text", STRING),
    ]) }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub enum ByByte {
        Number(i32),
        Text(String),
        /// No member: the discriminator has a value without a label.
        Other(u8),
    }

    impl ByByte {
        /// The value that chooses the member.
        pub fn discriminator(&self) -> u8 {
            match self {
                Self::Number(_) => 0,
                Self::Text(_) => 255,
                Self::Other(discriminator) => *discriminator,
            }
        }
    }

    impl Cdr for ByByte {
        const MIN_SIZE: usize = 1;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            let chosen = match self {
                Self::Other(discriminator) => !matches!(discriminator, 0 | 255),
                _ => true,
            };
            if !chosen {
                return Err(CdrError::BadDiscriminator);
            }
            e.write_u8(self.discriminator());
            match self {
                Self::Number(value) => {
                    e.write_i32(*value);
                }
                Self::Text(value) => {
                    At::member(e.write_str(value), "text", e)?;
                }
                Self::Other(_) => {}
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_u8()?;
            match discriminator {
                0 => Ok(Self::Number(At::member(d.read_i32(), "number", d)?)),
                255 => Ok(Self::Text(At::member(d.read_string(), "text", d)?)),
                _ => Ok(Self::Other(discriminator)),
            }
        }
    }

    corelane::describe! { pub static BY_BYTE_TYPE for ByByte = union("IDL:corelane.test/Values/ByByte:1.0", "ByByte", OCTET, -1, &[
        arm(0, "number", LONG),
        arm(255, "text", STRING),
    ]) }

    pub type Cookie = Native;

    corelane::describe! { pub static COOKIE_TYPE = native("IDL:corelane.test/Values/Cookie:1.0", "Cookie") }

    /// Tells the time.
    pub trait Clock: Send + Sync + 'static {
        fn hour(&self) -> Result<i32, SystemException>;
        /// Sets `hour`.
        fn set_hour(&self, hour: i32) -> Result<(), SystemException>;
        fn hand(&self, given: &Cookie) -> Result<(Cookie, Option<ClockRef>), clock::HandError>;
        fn both(&self, given: &Pair) -> Result<Pair, SystemException>;

        /// The object as local operations take it.
        fn local(this: Self) -> ClockRef
        where
            Self: Sized,
        {
            let object: std::sync::Arc<dyn Clock> = std::sync::Arc::new(this);
            object.into()
        }
    }

    /// A shared [`Clock`].
    pub type ClockRef = Local<dyn Clock>;

    corelane::describe! { pub static CLOCK_TYPE = local_interface("IDL:corelane.test/Values/Clock:1.0", "Clock") }

    /// What belongs to `Clock`.
    pub mod clock {
        corelane::raises! {
            /// The exceptions of an operation.
            pub enum HandError {
                Stopped(super::Stopped),
            }
        }
    }

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Stopped {
        pub r#where: Option<ClockRef>,
    }

    impl Cdr for Stopped {
        const MIN_SIZE: usize = 8;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            At::member(write_local(e, &self.r#where), "where", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                r#where: At::member(read_local(d), "where", d)?,
            })
        }
    }

    corelane::user_exception! { Stopped = "IDL:corelane.test/Values/Stopped:1.0" }

    corelane::describe! { pub static STOPPED_TYPE for exception Stopped = exception("IDL:corelane.test/Values/Stopped:1.0", "Stopped", &[
        member("where", &CLOCK_TYPE),
    ]) }

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Pair {
        pub one: Option<ClockRef>,
        pub two: Option<ClockRef>,
    }

    impl Cdr for Pair {
        const MIN_SIZE: usize = 16;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            At::member(write_local(e, &self.one), "one", e)?;
            At::member(write_local(e, &self.two), "two", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                one: At::member(read_local(d), "one", d)?,
                two: At::member(read_local(d), "two", d)?,
            })
        }
    }

    corelane::describe! { pub static PAIR_TYPE for Pair = structure("IDL:corelane.test/Values/Pair:1.0", "Pair", &[
        member("one", &CLOCK_TYPE),
        member("two", &CLOCK_TYPE),
    ]) }

    pub trait Alarm: Clock {
        fn ring(&self) -> Result<(), SystemException>;

        /// The object as local operations take it.
        fn local(this: Self) -> AlarmRef
        where
            Self: Sized,
        {
            let object: std::sync::Arc<dyn Alarm> = std::sync::Arc::new(this);
            object.into()
        }
    }

    /// A shared [`Alarm`].
    pub type AlarmRef = Local<dyn Alarm>;

    corelane::describe! { pub static ALARM_TYPE = local_interface("IDL:corelane.test/Values/Alarm:1.0", "Alarm") }

    /// A node of a graph.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Node {
        pub id: i32,
        pub left: Option<NodeRef>,
        pub right: Option<NodeRef>,
        /// Private: for those who implement the type.
        pub secret: String,
    }

    /// A shared [`Node`].
    pub type NodeRef = ValueRef<Node>;

    impl ValueType for Node {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_i32(self.id);
            At::member(write_value(e, self.left.as_ref()), "left", e)?;
            At::member(write_value(e, self.right.as_ref()), "right", e)?;
            At::member(e.write_str(&self.secret), "secret", e)
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                id: At::member(d.read_i32(), "id", d)?,
                left: At::member(read_value(d), "left", d)?,
                right: At::member(read_value(d), "right", d)?,
                secret: At::member(d.read_string(), "secret", d)?,
            })
        }
    }

    corelane::value_type! { Node = ["IDL:corelane.test/Values/Node:1.0"] }

    corelane::describe! { pub static NODE_TYPE for value Node = value("IDL:corelane.test/Values/Node:1.0", "Node", 0, None, &[
        public_member("id", LONG),
        public_member("left", &NODE_TYPE),
        public_member("right", &NODE_TYPE),
        private_member("secret", STRING),
    ]) }

    pub type Nodes = Vec<Option<NodeRef>>;
    corelane::describe! { pub static NODES_TYPE = alias("IDL:corelane.test/Values/Nodes:1.0", "Nodes", &sequence(&NODE_TYPE, 0)) }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Base {
        pub tag: u8,
        /// Private: for those who implement the type.
        pub label: String,
    }

    /// A shared [`Base`].
    pub type BaseRef = ValueRef<Base>;

    impl ValueType for Base {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_u8(self.tag);
            At::member(e.write_wstr(&self.label), "label", e)
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                tag: At::member(d.read_u8(), "tag", d)?,
                label: At::member(d.read_wstring(), "label", d)?,
            })
        }
    }

    corelane::value_type! { Base = ["IDL:corelane.test/Values/Base:1.0"] }

    corelane::describe! { pub static BASE_TYPE for value Base = value("IDL:corelane.test/Values/Base:1.0", "Base", 0, None, &[
        public_member("tag", OCTET),
        private_member("label", WSTRING),
    ]) }

    /// Can be received as a `Base`.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Derived {
        /// What is inherited.
        pub base: Base,
        pub extra: f64,
        pub graph: Option<NodeRef>,
    }

    /// A shared [`Derived`].
    pub type DerivedRef = ValueRef<Derived>;

    impl ValueType for Derived {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            ValueType::encode_state(&self.base, e)?;
            e.write_f64(self.extra);
            At::member(write_value(e, self.graph.as_ref()), "graph", e)
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                base: ValueType::decode_state(d)?,
                extra: At::member(d.read_f64(), "extra", d)?,
                graph: At::member(read_value(d), "graph", d)?,
            })
        }
    }

    corelane::value_type! {
        Derived: Base = [
            "IDL:corelane.test/Values/Derived:1.0",
            "IDL:corelane.test/Values/Base:1.0",
        ], truncatable to 1; Base
    }

    corelane::describe! { pub static DERIVED_TYPE for value Derived = value("IDL:corelane.test/Values/Derived:1.0", "Derived", 3, Some(&BASE_TYPE), &[
        public_member("extra", DOUBLE),
        public_member("graph", &NODE_TYPE),
    ]) }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Further {
        /// What is inherited.
        pub base: Derived,
        pub more: Nodes,
    }

    /// A shared [`Further`].
    pub type FurtherRef = ValueRef<Further>;

    impl ValueType for Further {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            ValueType::encode_state(&self.base, e)?;
            At::member(e.write_len(self.more.len()), "more", e)?;
            for (index, item) in self.more.iter().enumerate() {
                At::member(
                    At::element(write_value(e, item.as_ref()), index, e),
                    "more",
                    e,
                )?;
            }
            Ok(())
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                base: ValueType::decode_state(d)?,
                more: {
                    let len = At::member(d.read_len(4), "more", d)?;
                    let mut list: Vec<Option<NodeRef>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        let item =
                            At::member(At::element(read_value(d), list.len(), d), "more", d)?;
                        list.push(item);
                    }
                    list
                },
            })
        }
    }

    corelane::value_type! {
        Further: Derived = [
            "IDL:corelane.test/Values/Further:1.0",
            "IDL:corelane.test/Values/Derived:1.0",
            "IDL:corelane.test/Values/Base:1.0",
        ], truncatable to 2; Derived, Base
    }

    corelane::describe! { pub static FURTHER_TYPE for value Further = value("IDL:corelane.test/Values/Further:1.0", "Further", 3, Some(&DERIVED_TYPE), &[
        public_member("more", &NODES_TYPE),
    ]) }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Firm {
        /// What is inherited.
        pub base: Base,
        pub code: i32,
    }

    /// A shared [`Firm`].
    pub type FirmRef = ValueRef<Firm>;

    impl ValueType for Firm {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            ValueType::encode_state(&self.base, e)?;
            e.write_i32(self.code);
            Ok(())
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                base: ValueType::decode_state(d)?,
                code: At::member(d.read_i32(), "code", d)?,
            })
        }
    }

    corelane::value_type! {
        Firm: Base = [
            "IDL:corelane.test/Values/Firm:1.0",
            "IDL:corelane.test/Values/Base:1.0",
        ]; Base
    }

    corelane::describe! { pub static FIRM_TYPE for value Firm = value("IDL:corelane.test/Values/Firm:1.0", "Firm", 0, Some(&BASE_TYPE), &[
        public_member("code", LONG),
    ]) }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Nothing;

    /// A shared [`Nothing`].
    pub type NothingRef = ValueRef<Nothing>;

    impl ValueType for Nothing {
        fn encode_state(&self, _: &mut Encoder<'_>) -> Result<(), CdrError> {
            Ok(())
        }

        fn decode_state(_: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self)
        }
    }

    corelane::value_type! { Nothing = ["IDL:corelane.test/Values/Nothing:1.0"] }

    corelane::describe! { pub static NOTHING_TYPE for value Nothing = value("IDL:corelane.test/Values/Nothing:1.0", "Nothing", 0, None, &[]) }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Text(pub String);

    /// A shared [`Text`].
    pub type TextRef = ValueRef<Text>;

    impl ValueType for Text {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_wstr(&self.0)
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            d.read_wstring().map(Self)
        }
    }

    corelane::value_type! { Text = ["IDL:corelane.test/Values/Text:1.0"] }

    corelane::describe! { pub static TEXT_TYPE for value Text = value_box("IDL:corelane.test/Values/Text:1.0", "Text", WSTRING) }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Longs(pub Vec<i32>);

    /// A shared [`Longs`].
    pub type LongsRef = ValueRef<Longs>;

    impl ValueType for Longs {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            Cdr::encode(&self.0, e)
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Cdr::decode(d).map(Self)
        }
    }

    corelane::value_type! { Longs = ["IDL:corelane.test/Values/Longs:1.0"] }

    corelane::describe! { pub static LONGS_TYPE for value Longs = value_box("IDL:corelane.test/Values/Longs:1.0", "Longs", &sequence(LONG, 0)) }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Corner(pub Point);

    /// A shared [`Corner`].
    pub type CornerRef = ValueRef<Corner>;

    impl ValueType for Corner {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            Cdr::encode(&self.0, e)
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Cdr::decode(d).map(Self)
        }
    }

    corelane::value_type! { Corner = ["IDL:corelane.test/Values/Corner:1.0"] }

    corelane::describe! { pub static CORNER_TYPE for value Corner = value_box("IDL:corelane.test/Values/Corner:1.0", "Corner", &POINT_TYPE) }

    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Point {
        pub x: i32,
        pub y: i32,
    }

    corelane::plain! { Point { x: i32, y: i32 } }

    corelane::describe! { pub static POINT_TYPE for Point = structure("IDL:corelane.test/Values/Point:1.0", "Point", &[
        member("x", LONG),
        member("y", LONG),
    ]) }

    pub trait Named: Send + Sync + 'static {
        fn name(&self) -> Result<String, SystemException>;

        /// A servant that runs these operations, to be activated.
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            Named::servant_of(std::sync::Arc::new(this))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(NamedSkeleton(this))
        }
    }

    /// A reference to a [`Named`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct NamedRef(ObjectRef);

    impl Reference for NamedRef {
        const REPOSITORY_ID: &'static str = "IDL:corelane.test/Values/Named:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(object)
        }

        fn as_object(&self) -> &ObjectRef {
            &self.0
        }
    }

    corelane::reference_methods! { NamedRef }

    impl std::fmt::Display for NamedRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl NamedRef {
        pub fn name(&self) -> Result<String, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("_get_name");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Named + 'static)| servant.name();
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
    pub struct NamedSkeleton(std::sync::Arc<dyn Named>);

    impl NamedSkeleton {
        #[doc(hidden)]
        pub fn call(
            servant: &dyn Named,
            operation: usize,
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            match operation {
                0 => {
                    let result = servant.name()?;
                    let e = call.reply();
                    At::result(e.write_str(&result), "result", e)?;
                    Ok(())
                }
                _ => Err(SystemException::bad_operation()),
            }
        }
    }

    impl Skeleton for NamedSkeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &["IDL:corelane.test/Values/Named:1.0"]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            const NAMES: &[&str] = &["_get_name"];
            const DISPLACEMENTS: &[u16] = &[0];
            static OPERATIONS: OperationTable = OperationTable::new(0, DISPLACEMENTS, NAMES);
            match OPERATIONS.find(operation) {
                Some(operation) => Self::call(&*self.0, operation, call),
                None => Err(SystemException::bad_operation()),
            }
        }

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn Named>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static NAMED_TYPE for reference NamedRef = interface("IDL:corelane.test/Values/Named:1.0", "Named") }

    pub trait Described: Send + Sync + 'static {
        fn describe(&self, width: i16) -> Result<String, SystemException>;

        /// A servant that runs these operations, to be activated.
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            Described::servant_of(std::sync::Arc::new(this))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(DescribedSkeleton(this))
        }
    }

    /// A reference to a [`Described`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct DescribedObjectRef(ObjectRef);

    impl Reference for DescribedObjectRef {
        const REPOSITORY_ID: &'static str = "IDL:corelane.test/Values/Described:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(object)
        }

        fn as_object(&self) -> &ObjectRef {
            &self.0
        }
    }

    corelane::reference_methods! { DescribedObjectRef }

    impl std::fmt::Display for DescribedObjectRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl DescribedObjectRef {
        pub fn describe(&self, width: i16) -> Result<String, SystemException> {
            static OPERATION: Operation<'_> = Operation::new("describe");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Described + 'static)| servant.describe(width);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| At::member(d.read_string(), "result", d);
            this.call(&OPERATION, results, &|e| {
                e.write_i16(width);
                Ok(())
            })
        }
    }

    #[doc(hidden)]
    pub struct DescribedSkeleton(std::sync::Arc<dyn Described>);

    impl DescribedSkeleton {
        #[doc(hidden)]
        pub fn call(
            servant: &dyn Described,
            operation: usize,
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            match operation {
                0 => {
                    let d = call.arguments();
                    let width = At::argument(d.read_i16(), "width", d)?;
                    let result = servant.describe(width)?;
                    let e = call.reply();
                    At::result(e.write_str(&result), "result", e)?;
                    Ok(())
                }
                _ => Err(SystemException::bad_operation()),
            }
        }
    }

    impl Skeleton for DescribedSkeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &["IDL:corelane.test/Values/Described:1.0"]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            const NAMES: &[&str] = &["describe"];
            const DISPLACEMENTS: &[u16] = &[0];
            static OPERATIONS: OperationTable = OperationTable::new(0, DISPLACEMENTS, NAMES);
            match OPERATIONS.find(operation) {
                Some(operation) => Self::call(&*self.0, operation, call),
                None => Err(SystemException::bad_operation()),
            }
        }

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn Described>(&self.0, |this| this, |this| this);
        }
    }

    /// An object or a value that is a [`Described`].
    pub type DescribedRef = Abstract<DescribedObjectRef, dyn Described>;

    corelane::abstract_value! { Described = "IDL:corelane.test/Values/Described:1.0" }

    corelane::describe! { pub static DESCRIBED_TYPE for value dyn Described = abstract_interface("IDL:corelane.test/Values/Described:1.0", "Described") }

    pub trait Shape: Send + Sync + 'static {
        fn area(&self) -> Result<f64, SystemException>;
    }

    /// A shared [`Shape`].
    pub type ShapeRef = ValueRef<dyn Shape>;

    corelane::abstract_value! { Shape = "IDL:corelane.test/Values/Shape:1.0" }

    corelane::describe! { pub static SHAPE_TYPE for value dyn Shape = value("IDL:corelane.test/Values/Shape:1.0", "Shape", 2, None, &[]) }

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flat;

    impl Cdr for Flat {
        const MIN_SIZE: usize = 0;

        fn encode(&self, _: &mut Encoder<'_>) -> Result<(), CdrError> {
            Ok(())
        }

        fn decode(_: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self)
        }
    }

    corelane::user_exception! { Flat = "IDL:corelane.test/Values/Flat:1.0" }

    corelane::describe! { pub static FLAT_TYPE for exception Flat = exception("IDL:corelane.test/Values/Flat:1.0", "Flat", &[]) }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Circle {
        pub radius: f64,
    }

    /// A shared [`Circle`].
    pub type CircleRef = ValueRef<Circle>;

    impl ValueType for Circle {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            e.write_f64(self.radius);
            Ok(())
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                radius: At::member(d.read_f64(), "radius", d)?,
            })
        }
    }

    corelane::value_type! {
        Circle = [
            "IDL:corelane.test/Values/Circle:1.0",
            "IDL:corelane.test/Values/Shape:1.0",
            "IDL:corelane.test/Values/Described:1.0",
        ]; dyn Shape, dyn Described
    }

    /// The operations of a [`Circle`].
    pub trait CircleOperations: Shape + Described {
        fn grow(&self, factor: f64) -> Result<f64, circle::GrowError>;
        fn colour(&self) -> Result<String, SystemException>;
        /// Sets `colour`.
        fn set_colour(&self, colour: &str) -> Result<(), SystemException>;

        /// The state at this moment: what is sent.
        fn state(&self) -> Circle;

        /// For a value that runs these operations.
        fn implementation(this: Self) -> Implementation<Circle>
        where
            Self: Sized,
        {
            CircleOperations::implementation_of(std::sync::Arc::new(this))
        }

        /// The same for an object that others keep too.
        fn implementation_of(this: std::sync::Arc<Self>) -> Implementation<Circle>
        where
            Self: Sized,
        {
            Implementation::new(CircleImplementation(this))
        }
    }

    corelane::value_implementation! {
        CircleImplementation of Circle runs CircleOperations [Shape, Described]
    }

    /// What makes a [`Circle`].
    pub trait CircleFactory: Send + Sync + 'static {
        fn make(&self, radius: f64) -> Result<CircleRef, circle::GrowError>;
        fn unit(&self) -> Result<CircleRef, SystemException>;
    }

    corelane::describe! { pub static CIRCLE_TYPE for value Circle = value("IDL:corelane.test/Values/Circle:1.0", "Circle", 0, None, &[
        public_member("radius", DOUBLE),
    ]) }

    /// What belongs to `Circle`.
    pub mod circle {
        pub type Others = Vec<Option<super::CircleRef>>;
        corelane::describe! { pub static OTHERS_TYPE = alias("IDL:corelane.test/Values/Circle/Others:1.0", "Others", &sequence(&super::CIRCLE_TYPE, 0)) }

        corelane::raises! {
            /// The exceptions of an operation.
            pub enum GrowError {
                Flat(super::Flat),
            }
        }

        /// The exceptions of an operation, which another operation has too.
        pub type MakeError = GrowError;
    }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Ring {
        /// What is inherited.
        pub base: Circle,
        pub inner: f64,
    }

    /// A shared [`Ring`].
    pub type RingRef = ValueRef<Ring>;

    impl ValueType for Ring {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            ValueType::encode_state(&self.base, e)?;
            e.write_f64(self.inner);
            Ok(())
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                base: ValueType::decode_state(d)?,
                inner: At::member(d.read_f64(), "inner", d)?,
            })
        }
    }

    corelane::value_type! {
        Ring: Circle = [
            "IDL:corelane.test/Values/Ring:1.0",
            "IDL:corelane.test/Values/Circle:1.0",
            "IDL:corelane.test/Values/Shape:1.0",
            "IDL:corelane.test/Values/Named:1.0",
            "IDL:corelane.test/Values/Described:1.0",
        ]; Circle, dyn Shape, dyn Described
    }

    /// The operations of a [`Ring`].
    pub trait RingOperations: CircleOperations + Named {
        /// The state at this moment: what is sent.
        fn state(&self) -> Ring;

        /// For a value that runs these operations.
        fn implementation(this: Self) -> Implementation<Ring>
        where
            Self: Sized,
        {
            RingOperations::implementation_of(std::sync::Arc::new(this))
        }

        /// The same for an object that others keep too.
        fn implementation_of(this: std::sync::Arc<Self>) -> Implementation<Ring>
        where
            Self: Sized,
        {
            Implementation::new(RingImplementation(this))
        }
    }

    corelane::value_implementation! {
        RingImplementation of Ring runs RingOperations [CircleOperations, Shape, Named, Described]
    }

    corelane::describe! { pub static RING_TYPE for value Ring = value("IDL:corelane.test/Values/Ring:1.0", "Ring", 0, Some(&CIRCLE_TYPE), &[
        public_member("inner", DOUBLE),
    ]) }

    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Letter {
        pub text: String,
    }

    /// A shared [`Letter`].
    pub type LetterRef = ValueRef<Letter>;

    impl ValueType for Letter {
        fn encode_state(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            At::member(e.write_str(&self.text), "text", e)
        }

        fn decode_state(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                text: At::member(d.read_string(), "text", d)?,
            })
        }
    }

    corelane::value_type! {
        Letter = [
            "IDL:corelane.test/Values/Letter:1.0",
        ], custom true
    }

    /// The operations of a [`Letter`].
    pub trait LetterOperations: Send + Sync + 'static {
        /// The state at this moment: what is sent.
        fn state(&self) -> Letter;

        /// Writes what a value factory reads: the state, unless this is written otherwise.
        fn marshal(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            ValueType::encode_state(&LetterOperations::state(self), e)
        }

        /// For a value that runs these operations.
        fn implementation(this: Self) -> Implementation<Letter>
        where
            Self: Sized,
        {
            LetterOperations::implementation_of(std::sync::Arc::new(this))
        }

        /// The same for an object that others keep too.
        fn implementation_of(this: std::sync::Arc<Self>) -> Implementation<Letter>
        where
            Self: Sized,
        {
            Implementation::new(LetterImplementation(this))
        }
    }

    corelane::value_implementation! {
        custom LetterImplementation of Letter runs LetterOperations []
    }

    corelane::describe! { pub static LETTER_TYPE for value Letter = value("IDL:corelane.test/Values/Letter:1.0", "Letter", 1, None, &[
        public_member("text", STRING),
    ]) }

    pub trait Thing: Described {
        fn touch(&self) -> Result<(), SystemException>;

        /// A servant that runs these operations, to be activated.
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            Thing::servant_of(std::sync::Arc::new(this))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(ThingSkeleton(this))
        }
    }

    /// A reference to a [`Thing`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct ThingRef(DescribedObjectRef);

    impl Reference for ThingRef {
        const REPOSITORY_ID: &'static str = "IDL:corelane.test/Values/Thing:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(Reference::from_object(object))
        }

        fn as_object(&self) -> &ObjectRef {
            Reference::as_object(&self.0)
        }
    }

    corelane::reference_methods! { ThingRef }

    impl std::fmt::Display for ThingRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl std::ops::Deref for ThingRef {
        type Target = DescribedObjectRef;

        fn deref(&self) -> &DescribedObjectRef {
            &self.0
        }
    }

    impl From<ThingRef> for DescribedObjectRef {
        fn from(derived: ThingRef) -> Self {
            Reference::unchecked_narrow(Reference::as_object(&derived))
        }
    }

    impl ThingRef {
        pub fn touch(&self) -> Result<(), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("touch");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Thing + 'static)| servant.touch();
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            this.run(&OPERATION, &|_| Ok(()))
        }
    }

    #[doc(hidden)]
    pub struct ThingSkeleton(std::sync::Arc<dyn Thing>);

    impl ThingSkeleton {
        #[doc(hidden)]
        pub fn call(
            servant: &dyn Thing,
            operation: usize,
            _call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            match operation {
                0 => {
                    servant.touch()?;
                    Ok(())
                }
                _ => Err(SystemException::bad_operation()),
            }
        }
    }

    impl Skeleton for ThingSkeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &[
                "IDL:corelane.test/Values/Thing:1.0",
                "IDL:corelane.test/Values/Described:1.0",
            ]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            const NAMES: &[&str] = &["describe", "touch"];
            const DISPLACEMENTS: &[u16] = &[7];
            static OPERATIONS: OperationTable = OperationTable::new(0, DISPLACEMENTS, NAMES);
            match OPERATIONS.find(operation) {
                Some(0) => DescribedSkeleton::call(&*self.0, 0, call),
                Some(1) => Self::call(&*self.0, 0, call),
                _ => Err(SystemException::bad_operation()),
            }
        }

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn Thing>(&self.0, |this| this, |this| this);
            query.provide::<_, dyn Described>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static THING_TYPE for reference ThingRef = interface("IDL:corelane.test/Values/Thing:1.0", "Thing") }

    pub type AliasRef = NodeRef;
    corelane::describe! { pub static ALIAS_TYPE = alias("IDL:corelane.test/Values/Alias:1.0", "Alias", &NODE_TYPE) }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub enum Choice {
        Leaf(Option<NodeRef>),
        Text(Option<DescribedRef>),
        Anything(Option<AnyValueRef>),
        /// No member: the discriminator has a value without a label.
        Other(i32),
    }

    impl Choice {
        /// The value that chooses the member.
        pub fn discriminator(&self) -> i32 {
            match self {
                Self::Leaf(_) => 0,
                Self::Text(_) => 1,
                Self::Anything(_) => 2,
                Self::Other(discriminator) => *discriminator,
            }
        }
    }

    impl Cdr for Choice {
        const MIN_SIZE: usize = 4;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            let chosen = match self {
                Self::Other(discriminator) => !matches!(discriminator, 0..=2),
                _ => true,
            };
            if !chosen {
                return Err(CdrError::BadDiscriminator);
            }
            e.write_i32(self.discriminator());
            match self {
                Self::Leaf(value) => {
                    At::member(write_value(e, value.as_ref()), "leaf", e)?;
                }
                Self::Text(value) => {
                    At::member(write_abstract(e, value.as_ref()), "text", e)?;
                }
                Self::Anything(value) => {
                    At::member(write_value(e, value.as_ref()), "anything", e)?;
                }
                Self::Other(_) => {}
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            let discriminator = d.read_i32()?;
            match discriminator {
                0 => Ok(Self::Leaf(At::member(read_value(d), "leaf", d)?)),
                1 => Ok(Self::Text(At::member(read_abstract(d), "text", d)?)),
                2 => Ok(Self::Anything(At::member(read_value(d), "anything", d)?)),
                _ => Ok(Self::Other(discriminator)),
            }
        }
    }

    corelane::describe! { pub static CHOICE_TYPE for Choice = union("IDL:corelane.test/Values/Choice:1.0", "Choice", LONG, -1, &[
        arm(0, "leaf", &NODE_TYPE),
        arm(1, "text", &DESCRIBED_TYPE),
        arm(2, "anything", VALUE_BASE),
    ]) }

    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct Mixed {
        pub first: Option<NodeRef>,
        pub second: Option<AliasRef>,
        pub third: Option<DescribedRef>,
        pub chosen: Choice,
        pub form: Option<ShapeRef>,
        pub note: Option<TextRef>,
        pub any_value: Option<AnyValueRef>,
        pub list: Nodes,
        pub two: [Option<NodeRef>; 2],
        pub table: std::collections::BTreeMap<i32, Option<NodeRef>>,
    }

    impl Cdr for Mixed {
        const MIN_SIZE: usize = 45;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            At::member(write_value(e, self.first.as_ref()), "first", e)?;
            At::member(write_value(e, self.second.as_ref()), "second", e)?;
            At::member(write_abstract(e, self.third.as_ref()), "third", e)?;
            At::member(Cdr::encode(&self.chosen, e), "chosen", e)?;
            At::member(write_value(e, self.form.as_ref()), "form", e)?;
            At::member(write_value(e, self.note.as_ref()), "note", e)?;
            At::member(write_value(e, self.any_value.as_ref()), "any_value", e)?;
            At::member(e.write_len(self.list.len()), "list", e)?;
            for (index, item) in self.list.iter().enumerate() {
                At::member(
                    At::element(write_value(e, item.as_ref()), index, e),
                    "list",
                    e,
                )?;
            }
            for (index, item) in self.two.iter().enumerate() {
                At::member(
                    At::element(write_value(e, item.as_ref()), index, e),
                    "two",
                    e,
                )?;
            }
            At::member(e.write_len(self.table.len()), "table", e)?;
            for (key, value) in &self.table {
                e.write_i32(*key);
                At::member(write_value(e, value.as_ref()), "table", e)?;
            }
            Ok(())
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                first: At::member(read_value(d), "first", d)?,
                second: At::member(read_value(d), "second", d)?,
                third: At::member(read_abstract(d), "third", d)?,
                chosen: At::member(Cdr::decode(d), "chosen", d)?,
                form: At::member(read_value(d), "form", d)?,
                note: At::member(read_value(d), "note", d)?,
                any_value: At::member(read_value(d), "any_value", d)?,
                list: {
                    let len = At::member(d.read_len(4), "list", d)?;
                    let mut list: Vec<Option<NodeRef>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        let item =
                            At::member(At::element(read_value(d), list.len(), d), "list", d)?;
                        list.push(item);
                    }
                    list
                },
                two: {
                    let mut list: Vec<Option<NodeRef>> = Vec::with_capacity(2);
                    for _ in 0..2 {
                        let item = At::member(At::element(read_value(d), list.len(), d), "two", d)?;
                        list.push(item);
                    }
                    let array = list.try_into();
                    array.map_err(|_| CdrError::Truncated)?
                },
                table: {
                    let len = At::member(d.read_len(8), "table", d)?;
                    let mut map = std::collections::BTreeMap::new();
                    At::member(d.enter(), "table", d)?;
                    for _ in 0..len {
                        let key = At::member(d.read_i32(), "table", d)?;
                        let value: Option<NodeRef> = At::member(read_value(d), "table", d)?;
                        map.insert(key, value);
                    }
                    d.leave();
                    map
                },
            })
        }
    }

    corelane::describe! { pub static MIXED_TYPE for Mixed = structure("IDL:corelane.test/Values/Mixed:1.0", "Mixed", &[
        member("first", &NODE_TYPE),
        member("second", &ALIAS_TYPE),
        member("third", &DESCRIBED_TYPE),
        member("chosen", &CHOICE_TYPE),
        member("form", &SHAPE_TYPE),
        member("note", &TEXT_TYPE),
        member("any_value", VALUE_BASE),
        member("list", &NODES_TYPE),
        member("two", &array(&NODE_TYPE, 2)),
        member("table", &sequence(&structure("", "", &[member("key", LONG), member("value", &NODE_TYPE)]), 0)),
    ]) }

    #[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Rejected {
        pub culprit: Option<NodeRef>,
    }

    impl Cdr for Rejected {
        const MIN_SIZE: usize = 4;

        fn encode(&self, e: &mut Encoder<'_>) -> Result<(), CdrError> {
            At::member(write_value(e, self.culprit.as_ref()), "culprit", e)
        }

        fn decode(d: &mut Decoder<'_>) -> Result<Self, CdrError> {
            Ok(Self {
                culprit: At::member(read_value(d), "culprit", d)?,
            })
        }
    }

    corelane::user_exception! { Rejected = "IDL:corelane.test/Values/Rejected:1.0" }

    corelane::describe! { pub static REJECTED_TYPE for exception Rejected = exception("IDL:corelane.test/Values/Rejected:1.0", "Rejected", &[
        member("culprit", &NODE_TYPE),
    ]) }

    pub trait Exchange: Send + Sync + 'static {
        fn echo_node(
            &self,
            a: Option<&NodeRef>,
            b: Option<&NodeRef>,
        ) -> Result<(Option<NodeRef>, Option<NodeRef>, Option<NodeRef>), SystemException>;
        fn echo_mixed(
            &self,
            a: &Mixed,
            b: &Mixed,
        ) -> Result<(Mixed, Mixed, Mixed), exchange::EchoMixedError>;
        fn echo_base(
            &self,
            a: Option<&BaseRef>,
            b: Option<&BaseRef>,
        ) -> Result<(Option<BaseRef>, Option<BaseRef>, Option<BaseRef>), SystemException>;
        fn echo_shape(
            &self,
            a: Option<&ShapeRef>,
            b: Option<&ShapeRef>,
        ) -> Result<(Option<ShapeRef>, Option<ShapeRef>, Option<ShapeRef>), SystemException>;
        fn echo_described(
            &self,
            a: Option<&DescribedRef>,
            b: Option<&DescribedRef>,
        ) -> Result<
            (
                Option<DescribedRef>,
                Option<DescribedRef>,
                Option<DescribedRef>,
            ),
            SystemException,
        >;
        fn echo_value(
            &self,
            a: Option<&AnyValueRef>,
            b: Option<&AnyValueRef>,
        ) -> Result<
            (
                Option<AnyValueRef>,
                Option<AnyValueRef>,
                Option<AnyValueRef>,
            ),
            SystemException,
        >;
        fn echo_nodes(
            &self,
            a: &[Option<NodeRef>],
            b: &[Option<NodeRef>],
        ) -> Result<(Nodes, Nodes, Nodes), SystemException>;
        fn echo_text(
            &self,
            a: Option<&TextRef>,
            b: Option<&TextRef>,
        ) -> Result<(Option<TextRef>, Option<TextRef>, Option<TextRef>), SystemException>;
        fn echo_letter(
            &self,
            a: Option<&LetterRef>,
            b: Option<&LetterRef>,
        ) -> Result<(Option<LetterRef>, Option<LetterRef>, Option<LetterRef>), SystemException>;
        fn echo_account(
            &self,
            a: &Account,
            b: &Account,
        ) -> Result<(Account, Account, Account), SystemException>;
        fn echo_money(&self, a: Money, b: Money) -> Result<(Money, Money, Money), SystemException>;
        fn echo_moneys(
            &self,
            a: &[Money],
            b: &[Money],
        ) -> Result<(Moneys, Moneys, Moneys), SystemException>;
        fn echo_larger(
            &self,
            a: &Larger,
            b: &Larger,
        ) -> Result<(Larger, Larger, Larger), SystemException>;
        fn echo_maps(&self, a: &Maps, b: &Maps) -> Result<(Maps, Maps, Maps), SystemException>;
        fn echo_ages(&self, a: &Ages, b: &Ages) -> Result<(Ages, Ages, Ages), SystemException>;
        fn echo_rights(
            &self,
            a: Rights,
            b: Rights,
        ) -> Result<(Rights, Rights, Rights), SystemException>;
        fn echo_longer(
            &self,
            a: Longer,
            b: Longer,
        ) -> Result<(Longer, Longer, Longer), SystemException>;
        fn echo_by_letter(
            &self,
            a: &ByLetter,
            b: &ByLetter,
        ) -> Result<(ByLetter, ByLetter, ByLetter), SystemException>;
        fn echo_by_byte(
            &self,
            a: &ByByte,
            b: &ByByte,
        ) -> Result<(ByByte, ByByte, ByByte), SystemException>;

        /// A servant that runs these operations, to be activated.
        fn servant(this: Self) -> Servant
        where
            Self: Sized,
        {
            Exchange::servant_of(std::sync::Arc::new(this))
        }

        /// The same for an object that others keep too.
        fn servant_of(this: std::sync::Arc<Self>) -> Servant
        where
            Self: Sized,
        {
            Servant::new(ExchangeSkeleton(this))
        }
    }

    /// A reference to a [`Exchange`].
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub struct ExchangeRef(ObjectRef);

    impl Reference for ExchangeRef {
        const REPOSITORY_ID: &'static str = "IDL:corelane.test/Values/Exchange:1.0";

        fn from_object(object: ObjectRef) -> Self {
            Self(object)
        }

        fn as_object(&self) -> &ObjectRef {
            &self.0
        }
    }

    corelane::reference_methods! { ExchangeRef }

    impl std::fmt::Display for ExchangeRef {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            std::fmt::Display::fmt(Reference::as_object(self), f)
        }
    }

    impl ExchangeRef {
        pub fn echo_node(
            &self,
            a: Option<&NodeRef>,
            b: Option<&NodeRef>,
        ) -> Result<(Option<NodeRef>, Option<NodeRef>, Option<NodeRef>), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_node");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_node(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Option<NodeRef> = At::member(read_value(d), "result", d)?;
                let b: Option<NodeRef> = At::member(read_value(d), "b", d)?;
                let c: Option<NodeRef> = At::member(read_value(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(write_value(e, a), "a", e)?;
                At::member(write_value(e, b), "b", e)
            })
        }

        pub fn echo_mixed(
            &self,
            a: &Mixed,
            b: &Mixed,
        ) -> Result<(Mixed, Mixed, Mixed), exchange::EchoMixedError> {
            static OPERATION: Operation<'_> = Operation::new("echo_mixed");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_mixed(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Mixed = At::member(Cdr::decode(d), "result", d)?;
                let b: Mixed = At::member(Cdr::decode(d), "b", d)?;
                let c: Mixed = At::member(Cdr::decode(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call_raising(&OPERATION, results, &|e| {
                At::member(Cdr::encode(a, e), "a", e)?;
                At::member(Cdr::encode(b, e), "b", e)
            })
        }

        pub fn echo_base(
            &self,
            a: Option<&BaseRef>,
            b: Option<&BaseRef>,
        ) -> Result<(Option<BaseRef>, Option<BaseRef>, Option<BaseRef>), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_base");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_base(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Option<BaseRef> = At::member(read_value(d), "result", d)?;
                let b: Option<BaseRef> = At::member(read_value(d), "b", d)?;
                let c: Option<BaseRef> = At::member(read_value(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(write_value(e, a), "a", e)?;
                At::member(write_value(e, b), "b", e)
            })
        }

        pub fn echo_shape(
            &self,
            a: Option<&ShapeRef>,
            b: Option<&ShapeRef>,
        ) -> Result<(Option<ShapeRef>, Option<ShapeRef>, Option<ShapeRef>), SystemException>
        {
            static OPERATION: Operation<'_> = Operation::new("echo_shape");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_shape(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Option<ShapeRef> = At::member(read_value(d), "result", d)?;
                let b: Option<ShapeRef> = At::member(read_value(d), "b", d)?;
                let c: Option<ShapeRef> = At::member(read_value(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(write_value(e, a), "a", e)?;
                At::member(write_value(e, b), "b", e)
            })
        }

        pub fn echo_described(
            &self,
            a: Option<&DescribedRef>,
            b: Option<&DescribedRef>,
        ) -> Result<
            (
                Option<DescribedRef>,
                Option<DescribedRef>,
                Option<DescribedRef>,
            ),
            SystemException,
        > {
            static OPERATION: Operation<'_> = Operation::new("echo_described");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_described(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Option<DescribedRef> = At::member(read_abstract(d), "result", d)?;
                let b: Option<DescribedRef> = At::member(read_abstract(d), "b", d)?;
                let c: Option<DescribedRef> = At::member(read_abstract(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(write_abstract(e, a), "a", e)?;
                At::member(write_abstract(e, b), "b", e)
            })
        }

        pub fn echo_value(
            &self,
            a: Option<&AnyValueRef>,
            b: Option<&AnyValueRef>,
        ) -> Result<
            (
                Option<AnyValueRef>,
                Option<AnyValueRef>,
                Option<AnyValueRef>,
            ),
            SystemException,
        > {
            static OPERATION: Operation<'_> = Operation::new("echo_value");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_value(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Option<AnyValueRef> = At::member(read_value(d), "result", d)?;
                let b: Option<AnyValueRef> = At::member(read_value(d), "b", d)?;
                let c: Option<AnyValueRef> = At::member(read_value(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(write_value(e, a), "a", e)?;
                At::member(write_value(e, b), "b", e)
            })
        }

        pub fn echo_nodes(
            &self,
            a: &[Option<NodeRef>],
            b: &[Option<NodeRef>],
        ) -> Result<(Nodes, Nodes, Nodes), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_nodes");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_nodes(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Nodes = {
                    let len = At::member(d.read_len(4), "result", d)?;
                    let mut list: Vec<Option<NodeRef>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        let item =
                            At::member(At::element(read_value(d), list.len(), d), "result", d)?;
                        list.push(item);
                    }
                    list
                };
                let b: Nodes = {
                    let len = At::member(d.read_len(4), "b", d)?;
                    let mut list: Vec<Option<NodeRef>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        let item = At::member(At::element(read_value(d), list.len(), d), "b", d)?;
                        list.push(item);
                    }
                    list
                };
                let c: Nodes = {
                    let len = At::member(d.read_len(4), "c", d)?;
                    let mut list: Vec<Option<NodeRef>> = Vec::with_capacity(len.min(1024));
                    for _ in 0..len {
                        let item = At::member(At::element(read_value(d), list.len(), d), "c", d)?;
                        list.push(item);
                    }
                    list
                };
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(e.write_len(a.len()), "a", e)?;
                for (index, item) in a.iter().enumerate() {
                    At::member(At::element(write_value(e, item.as_ref()), index, e), "a", e)?;
                }
                At::member(e.write_len(b.len()), "b", e)?;
                for (index, item) in b.iter().enumerate() {
                    At::member(At::element(write_value(e, item.as_ref()), index, e), "b", e)?;
                }
                Ok(())
            })
        }

        pub fn echo_text(
            &self,
            a: Option<&TextRef>,
            b: Option<&TextRef>,
        ) -> Result<(Option<TextRef>, Option<TextRef>, Option<TextRef>), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_text");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_text(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Option<TextRef> = At::member(read_value(d), "result", d)?;
                let b: Option<TextRef> = At::member(read_value(d), "b", d)?;
                let c: Option<TextRef> = At::member(read_value(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(write_value(e, a), "a", e)?;
                At::member(write_value(e, b), "b", e)
            })
        }

        pub fn echo_letter(
            &self,
            a: Option<&LetterRef>,
            b: Option<&LetterRef>,
        ) -> Result<(Option<LetterRef>, Option<LetterRef>, Option<LetterRef>), SystemException>
        {
            static OPERATION: Operation<'_> = Operation::new("echo_letter");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_letter(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Option<LetterRef> = At::member(read_value(d), "result", d)?;
                let b: Option<LetterRef> = At::member(read_value(d), "b", d)?;
                let c: Option<LetterRef> = At::member(read_value(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(write_value(e, a), "a", e)?;
                At::member(write_value(e, b), "b", e)
            })
        }

        pub fn echo_account(
            &self,
            a: &Account,
            b: &Account,
        ) -> Result<(Account, Account, Account), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_account");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_account(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Account = At::member(Cdr::decode(d), "result", d)?;
                let b: Account = At::member(Cdr::decode(d), "b", d)?;
                let c: Account = At::member(Cdr::decode(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(a, e), "a", e)?;
                At::member(Cdr::encode(b, e), "b", e)
            })
        }

        pub fn echo_money(
            &self,
            a: Money,
            b: Money,
        ) -> Result<(Money, Money, Money), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_money");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_money(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Money = At::member(Cdr::decode(d), "result", d)?;
                let b: Money = At::member(Cdr::decode(d), "b", d)?;
                let c: Money = At::member(Cdr::decode(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(&a, e), "a", e)?;
                At::member(Cdr::encode(&b, e), "b", e)
            })
        }

        pub fn echo_moneys(
            &self,
            a: &[Money],
            b: &[Money],
        ) -> Result<(Moneys, Moneys, Moneys), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_moneys");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_moneys(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Moneys = At::member(Cdr::decode(d), "result", d)?;
                let b: Moneys = At::member(Cdr::decode(d), "b", d)?;
                let c: Moneys = At::member(Cdr::decode(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(e.write_len(a.len()), "a", e)?;
                At::member(Cdr::encode_all(a, e), "a", e)?;
                At::member(e.write_len(b.len()), "b", e)?;
                At::member(Cdr::encode_all(b, e), "b", e)
            })
        }

        pub fn echo_larger(
            &self,
            a: &Larger,
            b: &Larger,
        ) -> Result<(Larger, Larger, Larger), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_larger");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_larger(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Larger = At::member(Cdr::decode(d), "result", d)?;
                let b: Larger = At::member(Cdr::decode(d), "b", d)?;
                let c: Larger = At::member(Cdr::decode(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(a, e), "a", e)?;
                At::member(Cdr::encode(b, e), "b", e)
            })
        }

        pub fn echo_maps(&self, a: &Maps, b: &Maps) -> Result<(Maps, Maps, Maps), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_maps");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_maps(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Maps = At::member(Cdr::decode(d), "result", d)?;
                let b: Maps = At::member(Cdr::decode(d), "b", d)?;
                let c: Maps = At::member(Cdr::decode(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(a, e), "a", e)?;
                At::member(Cdr::encode(b, e), "b", e)
            })
        }

        pub fn echo_ages(&self, a: &Ages, b: &Ages) -> Result<(Ages, Ages, Ages), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_ages");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_ages(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Ages = {
                    let len = At::member(d.read_len(8), "result", d)?;
                    let mut map = std::collections::BTreeMap::new();
                    At::member(d.enter(), "result", d)?;
                    for _ in 0..len {
                        let key = At::member(d.read_string(), "result", d)?;
                        let value = At::member(d.read_i32(), "result", d)?;
                        map.insert(key, value);
                    }
                    d.leave();
                    map
                };
                let b: Ages = {
                    let len = At::member(d.read_len(8), "b", d)?;
                    let mut map = std::collections::BTreeMap::new();
                    At::member(d.enter(), "b", d)?;
                    for _ in 0..len {
                        let key = At::member(d.read_string(), "b", d)?;
                        let value = At::member(d.read_i32(), "b", d)?;
                        map.insert(key, value);
                    }
                    d.leave();
                    map
                };
                let c: Ages = {
                    let len = At::member(d.read_len(8), "c", d)?;
                    let mut map = std::collections::BTreeMap::new();
                    At::member(d.enter(), "c", d)?;
                    for _ in 0..len {
                        let key = At::member(d.read_string(), "c", d)?;
                        let value = At::member(d.read_i32(), "c", d)?;
                        map.insert(key, value);
                    }
                    d.leave();
                    map
                };
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(e.write_len(a.len()), "a", e)?;
                for (key, value) in a {
                    At::member(e.write_str(key), "a", e)?;
                    e.write_i32(*value);
                }
                At::member(e.write_len(b.len()), "b", e)?;
                for (key, value) in b {
                    At::member(e.write_str(key), "b", e)?;
                    e.write_i32(*value);
                }
                Ok(())
            })
        }

        pub fn echo_rights(
            &self,
            a: Rights,
            b: Rights,
        ) -> Result<(Rights, Rights, Rights), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_rights");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_rights(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Rights = At::member(Cdr::decode(d), "result", d)?;
                let b: Rights = At::member(Cdr::decode(d), "b", d)?;
                let c: Rights = At::member(Cdr::decode(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(&a, e), "a", e)?;
                At::member(Cdr::encode(&b, e), "b", e)
            })
        }

        pub fn echo_longer(
            &self,
            a: Longer,
            b: Longer,
        ) -> Result<(Longer, Longer, Longer), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_longer");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_longer(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: Longer = At::member(Cdr::decode(d), "result", d)?;
                let b: Longer = At::member(Cdr::decode(d), "b", d)?;
                let c: Longer = At::member(Cdr::decode(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(&a, e), "a", e)?;
                At::member(Cdr::encode(&b, e), "b", e)
            })
        }

        pub fn echo_by_letter(
            &self,
            a: &ByLetter,
            b: &ByLetter,
        ) -> Result<(ByLetter, ByLetter, ByLetter), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_by_letter");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_by_letter(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: ByLetter = At::member(Cdr::decode(d), "result", d)?;
                let b: ByLetter = At::member(Cdr::decode(d), "b", d)?;
                let c: ByLetter = At::member(Cdr::decode(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(a, e), "a", e)?;
                At::member(Cdr::encode(b, e), "b", e)
            })
        }

        pub fn echo_by_byte(
            &self,
            a: &ByByte,
            b: &ByByte,
        ) -> Result<(ByByte, ByByte, ByByte), SystemException> {
            static OPERATION: Operation<'_> = Operation::new("echo_by_byte");
            let this = Reference::as_object(self);
            let local = |servant: &(dyn Exchange + 'static)| servant.echo_by_byte(a, b);
            if let Some(servant) = this.direct() {
                return local(servant);
            }
            if let Some(outcome) = this.collocated(&OPERATION, local) {
                return outcome;
            }
            let results = |d: &mut Decoder<'_>| {
                let result: ByByte = At::member(Cdr::decode(d), "result", d)?;
                let b: ByByte = At::member(Cdr::decode(d), "b", d)?;
                let c: ByByte = At::member(Cdr::decode(d), "c", d)?;
                Ok((result, b, c))
            };
            this.call(&OPERATION, results, &|e| {
                At::member(Cdr::encode(a, e), "a", e)?;
                At::member(Cdr::encode(b, e), "b", e)
            })
        }
    }

    #[doc(hidden)]
    pub struct ExchangeSkeleton(std::sync::Arc<dyn Exchange>);

    impl ExchangeSkeleton {
        #[doc(hidden)]
        pub fn call(
            servant: &dyn Exchange,
            operation: usize,
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            match operation {
                0 => {
                    let d = call.arguments();
                    let a: Mixed = At::argument(Cdr::decode(d), "a", d)?;
                    let b: Mixed = At::argument(Cdr::decode(d), "b", d)?;
                    let outcome = servant.echo_mixed(&a, &b);
                    let (result, b_, c) = match outcome {
                        Ok(outcome) => outcome,
                        Err(error) => return error.raise(call),
                    };
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&b_, e), "b_", e)?;
                    At::result(Cdr::encode(&c, e), "c", e)?;
                    Ok(())
                }
                1 => {
                    let d = call.arguments();
                    let a: Option<DescribedRef> = At::argument(read_abstract(d), "a", d)?;
                    let b: Option<DescribedRef> = At::argument(read_abstract(d), "b", d)?;
                    let (result, b_, c) = servant.echo_described(a.as_ref(), b.as_ref())?;
                    let e = call.reply();
                    At::result(write_abstract(e, result.as_ref()), "result", e)?;
                    At::result(write_abstract(e, b_.as_ref()), "b_", e)?;
                    At::result(write_abstract(e, c.as_ref()), "c", e)?;
                    Ok(())
                }
                2 => {
                    let d = call.arguments();
                    let a: Option<NodeRef> = At::argument(read_value(d), "a", d)?;
                    let b: Option<NodeRef> = At::argument(read_value(d), "b", d)?;
                    let (result, b_, c) = servant.echo_node(a.as_ref(), b.as_ref())?;
                    let e = call.reply();
                    At::result(write_value(e, result.as_ref()), "result", e)?;
                    At::result(write_value(e, b_.as_ref()), "b_", e)?;
                    At::result(write_value(e, c.as_ref()), "c", e)?;
                    Ok(())
                }
                3 => {
                    let d = call.arguments();
                    let a: ByLetter = At::argument(Cdr::decode(d), "a", d)?;
                    let b: ByLetter = At::argument(Cdr::decode(d), "b", d)?;
                    let (result, b_, c) = servant.echo_by_letter(&a, &b)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&b_, e), "b_", e)?;
                    At::result(Cdr::encode(&c, e), "c", e)?;
                    Ok(())
                }
                4 => {
                    let d = call.arguments();
                    let a: Nodes = {
                        let len = At::argument(d.read_len(4), "a", d)?;
                        let mut list: Vec<Option<NodeRef>> = Vec::with_capacity(len.min(1024));
                        for _ in 0..len {
                            let item =
                                At::argument(At::element(read_value(d), list.len(), d), "a", d)?;
                            list.push(item);
                        }
                        list
                    };
                    let b: Nodes = {
                        let len = At::argument(d.read_len(4), "b", d)?;
                        let mut list: Vec<Option<NodeRef>> = Vec::with_capacity(len.min(1024));
                        for _ in 0..len {
                            let item =
                                At::argument(At::element(read_value(d), list.len(), d), "b", d)?;
                            list.push(item);
                        }
                        list
                    };
                    let (result, b_, c) = servant.echo_nodes(&a, &b)?;
                    let e = call.reply();
                    At::result(e.write_len(result.len()), "result", e)?;
                    for (index, item) in result.iter().enumerate() {
                        At::result(
                            At::element(write_value(e, item.as_ref()), index, e),
                            "result",
                            e,
                        )?;
                    }
                    At::result(e.write_len(b_.len()), "b_", e)?;
                    for (index, item) in b_.iter().enumerate() {
                        At::result(
                            At::element(write_value(e, item.as_ref()), index, e),
                            "b_",
                            e,
                        )?;
                    }
                    At::result(e.write_len(c.len()), "c", e)?;
                    for (index, item) in c.iter().enumerate() {
                        At::result(At::element(write_value(e, item.as_ref()), index, e), "c", e)?;
                    }
                    Ok(())
                }
                5 => {
                    let d = call.arguments();
                    let a: Option<ShapeRef> = At::argument(read_value(d), "a", d)?;
                    let b: Option<ShapeRef> = At::argument(read_value(d), "b", d)?;
                    let (result, b_, c) = servant.echo_shape(a.as_ref(), b.as_ref())?;
                    let e = call.reply();
                    At::result(write_value(e, result.as_ref()), "result", e)?;
                    At::result(write_value(e, b_.as_ref()), "b_", e)?;
                    At::result(write_value(e, c.as_ref()), "c", e)?;
                    Ok(())
                }
                6 => {
                    let d = call.arguments();
                    let a: ByByte = At::argument(Cdr::decode(d), "a", d)?;
                    let b: ByByte = At::argument(Cdr::decode(d), "b", d)?;
                    let (result, b_, c) = servant.echo_by_byte(&a, &b)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&b_, e), "b_", e)?;
                    At::result(Cdr::encode(&c, e), "c", e)?;
                    Ok(())
                }
                7 => {
                    let d = call.arguments();
                    let a: Longer = At::argument(Cdr::decode(d), "a", d)?;
                    let b: Longer = At::argument(Cdr::decode(d), "b", d)?;
                    let (result, b_, c) = servant.echo_longer(a, b)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&b_, e), "b_", e)?;
                    At::result(Cdr::encode(&c, e), "c", e)?;
                    Ok(())
                }
                8 => {
                    let d = call.arguments();
                    let a: Money = At::argument(Cdr::decode(d), "a", d)?;
                    let b: Money = At::argument(Cdr::decode(d), "b", d)?;
                    let (result, b_, c) = servant.echo_money(a, b)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&b_, e), "b_", e)?;
                    At::result(Cdr::encode(&c, e), "c", e)?;
                    Ok(())
                }
                9 => {
                    let d = call.arguments();
                    let a: Ages = {
                        let len = At::argument(d.read_len(8), "a", d)?;
                        let mut map = std::collections::BTreeMap::new();
                        At::argument(d.enter(), "a", d)?;
                        for _ in 0..len {
                            let key = At::argument(d.read_string(), "a", d)?;
                            let value = At::argument(d.read_i32(), "a", d)?;
                            map.insert(key, value);
                        }
                        d.leave();
                        map
                    };
                    let b: Ages = {
                        let len = At::argument(d.read_len(8), "b", d)?;
                        let mut map = std::collections::BTreeMap::new();
                        At::argument(d.enter(), "b", d)?;
                        for _ in 0..len {
                            let key = At::argument(d.read_string(), "b", d)?;
                            let value = At::argument(d.read_i32(), "b", d)?;
                            map.insert(key, value);
                        }
                        d.leave();
                        map
                    };
                    let (result, b_, c) = servant.echo_ages(&a, &b)?;
                    let e = call.reply();
                    At::result(e.write_len(result.len()), "result", e)?;
                    for (key, value) in &result {
                        At::result(e.write_str(key), "result", e)?;
                        e.write_i32(*value);
                    }
                    At::result(e.write_len(b_.len()), "b_", e)?;
                    for (key, value) in &b_ {
                        At::result(e.write_str(key), "b_", e)?;
                        e.write_i32(*value);
                    }
                    At::result(e.write_len(c.len()), "c", e)?;
                    for (key, value) in &c {
                        At::result(e.write_str(key), "c", e)?;
                        e.write_i32(*value);
                    }
                    Ok(())
                }
                10 => {
                    let d = call.arguments();
                    let a: Option<AnyValueRef> = At::argument(read_value(d), "a", d)?;
                    let b: Option<AnyValueRef> = At::argument(read_value(d), "b", d)?;
                    let (result, b_, c) = servant.echo_value(a.as_ref(), b.as_ref())?;
                    let e = call.reply();
                    At::result(write_value(e, result.as_ref()), "result", e)?;
                    At::result(write_value(e, b_.as_ref()), "b_", e)?;
                    At::result(write_value(e, c.as_ref()), "c", e)?;
                    Ok(())
                }
                11 => {
                    let d = call.arguments();
                    let a: Larger = At::argument(Cdr::decode(d), "a", d)?;
                    let b: Larger = At::argument(Cdr::decode(d), "b", d)?;
                    let (result, b_, c) = servant.echo_larger(&a, &b)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&b_, e), "b_", e)?;
                    At::result(Cdr::encode(&c, e), "c", e)?;
                    Ok(())
                }
                12 => {
                    let d = call.arguments();
                    let a: Account = At::argument(Cdr::decode(d), "a", d)?;
                    let b: Account = At::argument(Cdr::decode(d), "b", d)?;
                    let (result, b_, c) = servant.echo_account(&a, &b)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&b_, e), "b_", e)?;
                    At::result(Cdr::encode(&c, e), "c", e)?;
                    Ok(())
                }
                13 => {
                    let d = call.arguments();
                    let len = At::argument(d.read_len(5), "a", d)?;
                    let a = At::argument(d.read_slice_with(len, <Money as Cdr>::decode), "a", d)?;
                    let len = At::argument(d.read_len(5), "b", d)?;
                    let b = At::argument(d.read_slice_with(len, <Money as Cdr>::decode), "b", d)?;
                    let (result, b_, c) = servant.echo_moneys(a, b)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&b_, e), "b_", e)?;
                    At::result(Cdr::encode(&c, e), "c", e)?;
                    Ok(())
                }
                14 => {
                    let d = call.arguments();
                    let a: Option<BaseRef> = At::argument(read_value(d), "a", d)?;
                    let b: Option<BaseRef> = At::argument(read_value(d), "b", d)?;
                    let (result, b_, c) = servant.echo_base(a.as_ref(), b.as_ref())?;
                    let e = call.reply();
                    At::result(write_value(e, result.as_ref()), "result", e)?;
                    At::result(write_value(e, b_.as_ref()), "b_", e)?;
                    At::result(write_value(e, c.as_ref()), "c", e)?;
                    Ok(())
                }
                15 => {
                    let d = call.arguments();
                    let a: Option<LetterRef> = At::argument(read_value(d), "a", d)?;
                    let b: Option<LetterRef> = At::argument(read_value(d), "b", d)?;
                    let (result, b_, c) = servant.echo_letter(a.as_ref(), b.as_ref())?;
                    let e = call.reply();
                    At::result(write_value(e, result.as_ref()), "result", e)?;
                    At::result(write_value(e, b_.as_ref()), "b_", e)?;
                    At::result(write_value(e, c.as_ref()), "c", e)?;
                    Ok(())
                }
                16 => {
                    let d = call.arguments();
                    let a: Maps = At::argument(Cdr::decode(d), "a", d)?;
                    let b: Maps = At::argument(Cdr::decode(d), "b", d)?;
                    let (result, b_, c) = servant.echo_maps(&a, &b)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&b_, e), "b_", e)?;
                    At::result(Cdr::encode(&c, e), "c", e)?;
                    Ok(())
                }
                17 => {
                    let d = call.arguments();
                    let a: Rights = At::argument(Cdr::decode(d), "a", d)?;
                    let b: Rights = At::argument(Cdr::decode(d), "b", d)?;
                    let (result, b_, c) = servant.echo_rights(a, b)?;
                    let e = call.reply();
                    At::result(Cdr::encode(&result, e), "result", e)?;
                    At::result(Cdr::encode(&b_, e), "b_", e)?;
                    At::result(Cdr::encode(&c, e), "c", e)?;
                    Ok(())
                }
                18 => {
                    let d = call.arguments();
                    let a: Option<TextRef> = At::argument(read_value(d), "a", d)?;
                    let b: Option<TextRef> = At::argument(read_value(d), "b", d)?;
                    let (result, b_, c) = servant.echo_text(a.as_ref(), b.as_ref())?;
                    let e = call.reply();
                    At::result(write_value(e, result.as_ref()), "result", e)?;
                    At::result(write_value(e, b_.as_ref()), "b_", e)?;
                    At::result(write_value(e, c.as_ref()), "c", e)?;
                    Ok(())
                }
                _ => Err(SystemException::bad_operation()),
            }
        }
    }

    impl Skeleton for ExchangeSkeleton {
        fn repository_ids(&self) -> &'static [&'static str] {
            &["IDL:corelane.test/Values/Exchange:1.0"]
        }

        fn dispatch(
            &self,
            operation: &[u8],
            call: &mut ServerCall<'_>,
        ) -> Result<(), SystemException> {
            const NAMES: &[&str] = &[
                "echo_mixed",
                "echo_described",
                "echo_node",
                "echo_by_letter",
                "echo_nodes",
                "echo_shape",
                "echo_by_byte",
                "echo_longer",
                "echo_money",
                "echo_ages",
                "echo_value",
                "echo_larger",
                "echo_account",
                "echo_moneys",
                "echo_base",
                "echo_letter",
                "echo_maps",
                "echo_rights",
                "echo_text",
            ];
            const DISPLACEMENTS: &[u16] = &[16, 10, 0, 260];
            static OPERATIONS: OperationTable = OperationTable::new(0, DISPLACEMENTS, NAMES);
            match OPERATIONS.find(operation) {
                Some(operation) => Self::call(&*self.0, operation, call),
                None => Err(SystemException::bad_operation()),
            }
        }

        fn query_interface<'s>(&'s self, query: &mut InterfaceQuery<'s>) {
            query.provide::<_, dyn Exchange>(&self.0, |this| this, |this| this);
        }
    }

    corelane::describe! { pub static EXCHANGE_TYPE for reference ExchangeRef = interface("IDL:corelane.test/Values/Exchange:1.0", "Exchange") }

    /// What belongs to `Exchange`.
    pub mod exchange {
        corelane::raises! {
            /// The exceptions of an operation.
            pub enum EchoMixedError {
                Rejected(super::Rejected),
            }
        }
    }
}
