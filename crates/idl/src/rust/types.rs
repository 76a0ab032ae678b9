//! Types of IDL as types of Rust (docs/rust-mapping.md).

use super::Generator;
use super::names::is_reference;
use crate::ast::{Basic, Flavor};
use crate::model::{DefinitionId, Kind, Type};

/// Arrays from this size are boxed.
const BOXED_FROM: u64 = 4096;

/// What is known of a structure, exception, union or enumeration.
#[derive(Debug)]
pub(super) struct Facts {
    /// Octets in memory, to a word.
    size: u64,
    /// Octets on the wire at least.
    least: u64,
    /// Whether no part is on the heap.
    copy: bool,
    /// Whether no part is of floating point.
    exact: bool,
    /// Whether all parts are numbers, booleans and enumerations.
    plain: bool,
}

impl Generator<'_> {
    /// The type of members, results and elements.
    pub(super) fn owned(&mut self, ty: &Type) -> String {
        match ty {
            Type::Basic(basic) => self.basic(*basic),
            Type::String(..) => "String".to_owned(),
            Type::Sequence(element, _) if self.is_octet(element) => self.runtime("Octets"),
            Type::Sequence(element, _) => format!("Vec<{}>", self.owned(element)),
            Type::Array(..) => {
                let array = self.array(ty);
                if self.is_boxed(ty) { format!("Box<{array}>") } else { array }
            }
            Type::Named(id) if self.is_built_in(*id) => {
                let behind = self.model().resolved(ty).clone();
                match behind {
                    _ if self.is_type_code(ty) => self.runtime("TypeCode"),
                    _ if behind == *ty => "()".to_owned(),
                    _ => self.owned(&behind),
                }
            }
            Type::Named(id) => {
                let path = self.path_to(*id);
                match self.model().resolved_definition(ty) {
                    Some(of) if is_reference(self.model(), of) => format!("Option<{path}>"),
                    _ => path,
                }
            }
            Type::Fixed(digits, scale) => format!("{}<{digits}, {scale}>", self.runtime("Fixed")),
            Type::Map(pair, _) => {
                let (key, value) = (self.owned(&pair.0), self.owned(&pair.1));
                if self.is_ordered(&pair.0) {
                    format!("std::collections::BTreeMap<{key}, {value}>")
                } else {
                    format!("Vec<({key}, {value})>")
                }
            }
            Type::FixedConstant | Type::Faulty => "()".to_owned(),
        }
    }

    fn basic(&mut self, basic: Basic) -> String {
        let text = match basic {
            Basic::Short => "i16",
            Basic::UShort => "u16",
            Basic::Long => "i32",
            Basic::ULong => "u32",
            Basic::LongLong => "i64",
            Basic::ULongLong => "u64",
            Basic::Int8 => "i8",
            Basic::UInt8 | Basic::Octet => "u8",
            Basic::Float => "f32",
            Basic::Double => "f64",
            Basic::LongDouble => return self.runtime("LongDouble"),
            Basic::Char | Basic::WChar => "char",
            Basic::Boolean => "bool",
            Basic::Object => return format!("Option<{}>", self.runtime("ObjectRef")),
            Basic::Any => return self.runtime("Any"),
            Basic::ValueBase => return format!("Option<{}>", self.runtime("AnyValueRef")),
            Basic::Void => "()",
        };
        text.to_owned()
    }

    /// An array, not boxed.
    fn array(&mut self, ty: &Type) -> String {
        let Type::Array(element, dimensions) = ty else { return self.owned(ty) };
        let mut text = self.owned(element);
        for size in dimensions.iter().rev() {
            text = format!("[{text}; {size}]");
        }
        text
    }

    /// The type of an `in` or `inout` parameter.
    pub(super) fn borrowed(&mut self, ty: &Type) -> String {
        let resolved = self.model().resolved(ty).clone();
        match &resolved {
            Type::Basic(Basic::Object | Basic::ValueBase) => self.owned(&resolved).replacen("Option<", "Option<&", 1),
            Type::Basic(Basic::LongDouble) => self.runtime("LongDouble"),
            Type::Basic(Basic::Any) => format!("&{}", self.runtime("Any")),
            Type::Basic(_) | Type::Fixed(..) => self.owned(ty),
            Type::Map(pair, _) if !self.is_ordered(&pair.0) => {
                format!("&[({}, {})]", self.owned(&pair.0), self.owned(&pair.1))
            }
            Type::Map(..) => format!("&{}", self.owned(ty)),
            Type::String(..) => "&str".to_owned(),
            Type::Sequence(element, _) if self.is_octet(element) => "&[u8]".to_owned(),
            Type::Sequence(element, _) if self.is_string(element) => "&[&str]".to_owned(),
            Type::Sequence(element, _) => format!("&[{}]", self.owned(element)),
            Type::Array(..) if self.is_boxed(&resolved) => format!("&{}", self.array(&resolved)),
            Type::Array(..) => format!("&{}", self.owned(ty)),
            Type::Named(id) => match &self.model().get(*id).kind {
                Kind::Enum(_) | Kind::Bitmask(_) | Kind::Bitset(_) => self.owned(ty),
                Kind::Interface(_) | Kind::Value(_) | Kind::ValueBox(_) => {
                    self.owned(ty).replacen("Option<", "Option<&", 1)
                }
                _ => format!("&{}", self.owned(ty)),
            },
            _ => "()".to_owned(),
        }
    }

    /// Whether keys of a map are kept in order: their Rust type has one.
    pub(super) fn is_ordered(&self, key: &Type) -> bool {
        match self.model().resolved(key) {
            Type::Basic(basic) => !matches!(
                basic,
                Basic::Float | Basic::Double | Basic::LongDouble | Basic::Any | Basic::Object | Basic::ValueBase
            ),
            Type::String(..) | Type::Fixed(..) => true,
            Type::Named(id) => {
                matches!(self.model().get(*id).kind, Kind::Enum(_) | Kind::Bitmask(_) | Kind::Bitset(_))
            }
            _ => false,
        }
    }

    pub(super) fn is_octet(&self, ty: &Type) -> bool {
        *self.model().resolved(ty) == Type::Basic(Basic::Octet)
    }

    pub(super) fn is_string(&self, ty: &Type) -> bool {
        matches!(self.model().resolved(ty), Type::String(..))
    }

    pub(super) fn is_boxed(&self, ty: &Type) -> bool {
        matches!(ty, Type::Array(..)) && self.array_size(ty) >= BOXED_FROM
    }

    fn array_size(&self, ty: &Type) -> u64 {
        let Type::Array(element, dimensions) = ty else { return self.size(ty) };
        dimensions.iter().fold(self.size(element), |size, count| size.saturating_mul(u64::from(*count)))
    }

    /// Octets that a value takes in memory, to a word.
    fn size(&self, ty: &Type) -> u64 {
        match self.model().resolved(ty) {
            Type::Basic(basic) => match basic {
                Basic::Octet | Basic::Int8 | Basic::UInt8 | Basic::Boolean => 1,
                Basic::Short | Basic::UShort => 2,
                Basic::Long | Basic::ULong | Basic::Float | Basic::Char | Basic::WChar => 4,
                Basic::LongDouble | Basic::Object => 16,
                Basic::Any => 80,
                _ => 8,
            },
            Type::Fixed(..) => 16,
            array @ Type::Array(..) => Some(self.array_size(array)).filter(|size| *size < BOXED_FROM).unwrap_or(8),
            Type::Named(id) => self.facts.get(id).map_or(24, |facts| facts.size),
            _ => 24,
        }
    }

    /// Whether values have no parts on the heap, so that they can be copied and borrowed from the arena.
    pub(super) fn is_fixed_size(&self, ty: &Type) -> bool {
        match self.model().resolved(ty) {
            Type::Basic(basic) => !matches!(basic, Basic::Any | Basic::Object | Basic::ValueBase),
            array @ Type::Array(element, _) => !self.is_boxed(array) && self.is_fixed_size(element),
            Type::Fixed(..) => true,
            Type::Named(id) => self.is_copy(*id),
            _ => false,
        }
    }

    /// Whether sequences of the type are written and read in one go, each member at a constant offset.
    pub(super) fn is_plain(&self, ty: &Type) -> bool {
        match self.model().resolved(ty) {
            Type::Basic(basic) => matches!(
                basic,
                Basic::Short
                    | Basic::UShort
                    | Basic::Long
                    | Basic::ULong
                    | Basic::LongLong
                    | Basic::ULongLong
                    | Basic::Int8
                    | Basic::UInt8
                    | Basic::Octet
                    | Basic::Float
                    | Basic::Double
                    | Basic::Boolean
            ),
            array @ Type::Array(element, _) => !self.is_boxed(array) && self.is_plain(element),
            Type::Named(id) => self.is_plain_definition(*id),
            _ => false,
        }
    }

    /// Whether that holds for a structure or an enumeration.
    pub(super) fn is_plain_definition(&self, id: DefinitionId) -> bool {
        self.facts.get(&id).is_some_and(|facts| facts.plain)
    }

    /// Whether a structure, union or enumeration is of fixed size.
    pub(super) fn is_copy(&self, id: DefinitionId) -> bool {
        self.facts.get(&id).is_some_and(|facts| facts.copy)
    }

    /// Whether two values can be compared exactly and hashed: nothing of floating point in them.
    pub(super) fn is_exact(&self, id: DefinitionId) -> bool {
        self.facts.get(&id).is_none_or(|facts| facts.exact)
    }

    fn is_exact_type(&self, ty: &Type) -> bool {
        match self.model().resolved(ty) {
            Type::Basic(basic) => !matches!(basic, Basic::Float | Basic::Double | Basic::LongDouble | Basic::Any),
            Type::Array(element, _) | Type::Sequence(element, _) => self.is_exact_type(element),
            Type::Map(pair, _) => self.is_exact_type(&pair.0) && self.is_exact_type(&pair.1),
            Type::Named(id) => self.is_exact(*id),
            _ => true,
        }
    }

    /// Octets that a value has on the wire at least, without alignment.
    pub(super) fn least_size(&self, ty: &Type) -> u64 {
        match self.model().resolved(ty) {
            Type::Basic(basic) => match basic {
                Basic::Short | Basic::UShort => 2,
                Basic::Long | Basic::ULong | Basic::Float | Basic::Any => 4,
                Basic::LongLong | Basic::ULongLong | Basic::Double | Basic::Object => 8,
                Basic::LongDouble => 16,
                Basic::ValueBase => 4,
                _ => 1,
            },
            Type::Fixed(digits, _) => u64::from(digits / 2 + 1),
            Type::String(..) | Type::Sequence(..) | Type::Map(..) => 4,
            Type::Array(element, dimensions) => {
                let element = self.least_size(element);
                dimensions.iter().fold(element, |size, count| size.saturating_mul(u64::from(*count)))
            }
            Type::Named(_) if self.is_type_code(ty) => 4,
            Type::Named(id) => match &self.model().get(*id).kind {
                Kind::Value(_) | Kind::ValueBox(_) => 4,
                Kind::Interface(interface) if interface.flavor == Flavor::Abstract => 5,
                _ => self.facts.get(id).map_or(8, |facts| facts.least),
            },
            _ => 1,
        }
    }

    /// Finds the facts of all types, each once: a type stands behind those that it contains.
    pub(super) fn find_facts(&mut self) {
        let model = self.model();
        for id in model.ids() {
            let (size, least) = match &model.get(id).kind {
                Kind::Bitmask(mask) => bits(mask.bound),
                Kind::Bitset(set) => bits(set.bits),
                _ => continue,
            };
            self.facts.insert(id, Facts { size, least, copy: true, exact: true, plain: false });
        }
        for id in &model.completed {
            let members: Vec<Type> = match &model.get(*id).kind {
                Kind::Struct(structure) | Kind::Exception(structure) => {
                    model.all_members(structure).into_iter().map(|member| member.ty).collect()
                }
                Kind::Union(union) => union.arms.iter().map(|arm| arm.member.ty.clone()).collect(),
                _ => Vec::new(),
            };
            let sum = |size: &dyn Fn(&Type) -> u64| members.iter().map(size).fold(0, u64::saturating_add);
            let (size, least) = match &model.get(*id).kind {
                Kind::Union(union) => {
                    let largest = members.iter().map(|ty| self.size(ty)).max().unwrap_or(0);
                    (largest.saturating_add(8), self.least_size(&union.discriminator))
                }
                Kind::Enum(enumerators) => (if enumerators.len() <= 256 { 1 } else { 4 }, 4),
                _ => (sum(&|ty| self.size(ty)), sum(&|ty| self.least_size(ty))),
            };
            let copy = members.iter().all(|ty| self.is_fixed_size(ty));
            let plain = match &model.get(*id).kind {
                Kind::Struct(_) => !members.is_empty() && members.iter().all(|ty| self.is_plain(ty)),
                Kind::Enum(_) => true,
                _ => false,
            };
            self.facts.insert(*id, Facts { size, least, copy, exact: true, plain });
        }
        // Sequences lead back to types that stand further down: go round until nothing changes.
        let mut changed = true;
        while changed {
            changed = false;
            for id in &model.completed {
                let exact = match &model.get(*id).kind {
                    Kind::Struct(structure) | Kind::Exception(structure) => {
                        model.all_members(structure).iter().all(|member| self.is_exact_type(&member.ty))
                    }
                    Kind::Union(union) => union.arms.iter().all(|arm| self.is_exact_type(&arm.member.ty)),
                    _ => true,
                };
                if let Some(facts) = self.facts.get_mut(id).filter(|facts| facts.exact && !exact) {
                    facts.exact = false;
                    changed = true;
                }
            }
        }
    }

    /// Why a type has no form in Rust yet.
    pub(super) fn unsupported_type(&self, ty: &Type) -> Option<&'static str> {
        match ty {
            Type::Map(pair, _) => self.unsupported_type(&pair.0).or_else(|| self.unsupported_type(&pair.1)),
            Type::Fixed(..) | Type::FixedConstant => None,
            Type::Faulty => Some("this type"),
            Type::Basic(_) | Type::String(..) => None,
            Type::Sequence(element, _) | Type::Array(element, _) => self.unsupported_type(element),
            Type::Named(id) => self.unsupported.get(id).copied(),
        }
    }
}

/// Octets of a number with so many bits, in memory and on the wire.
fn bits(bits: u32) -> (u64, u64) {
    let octets = match super::extended::number(bits) {
        "u8" => 1,
        "u16" => 2,
        "u32" => 4,
        _ => 8,
    };
    (octets, octets)
}
