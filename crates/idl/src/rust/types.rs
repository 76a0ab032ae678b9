//! The Rust types of IDL types (docs/rust-mapping.md).

use super::Generator;
use super::names::is_reference;
use crate::ast::{BasicType, InterfaceFlavor};
use crate::model::{DefinitionId, DefinitionKind, Type};

const BOXED_FROM: u64 = 4096;

#[derive(Debug)]
pub(super) struct TypeFacts {
    size: u64,
    least: u64,
    /// True if no part is on the heap.
    copy: bool,
    /// True if no part is a floating-point number or an `any`.
    exact: bool,
    /// True if all parts are booleans, enumerations, or numbers other than `long double` and
    /// `fixed`.
    plain: bool,
    default: bool,
    /// True if all parts are types of Rust's standard library for which other crates commonly
    /// implement their traits.
    standard: bool,
}

/// Maximum length of arrays for which other crates commonly implement their traits.
const LONGEST_COMMON_ARRAY: u32 = 32;

impl Generator<'_> {
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
                let behind = self.model().unaliased(ty).clone();
                match behind {
                    _ if self.is_type_code(ty) => self.runtime("TypeCode"),
                    _ if behind == *ty => "()".to_owned(),
                    _ => self.owned(&behind),
                }
            }
            Type::Named(id) => {
                let path = self.path_to(*id);
                match self.model().unaliased_definition(ty) {
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

    fn basic(&mut self, basic: BasicType) -> String {
        let text = match basic {
            BasicType::Short => "i16",
            BasicType::UShort => "u16",
            BasicType::Long => "i32",
            BasicType::ULong => "u32",
            BasicType::LongLong => "i64",
            BasicType::ULongLong => "u64",
            BasicType::Int8 => "i8",
            BasicType::UInt8 | BasicType::Octet => "u8",
            BasicType::Float => "f32",
            BasicType::Double => "f64",
            BasicType::LongDouble => return self.runtime("LongDouble"),
            BasicType::Char | BasicType::WChar => "char",
            BasicType::Boolean => "bool",
            BasicType::Object => return format!("Option<{}>", self.runtime("ObjectRef")),
            BasicType::Any => return self.runtime("Any"),
            BasicType::ValueBase => return format!("Option<{}>", self.runtime("AnyValueRef")),
            BasicType::Void => "()",
        };
        text.to_owned()
    }

    fn array(&mut self, ty: &Type) -> String {
        let Type::Array(element, dimensions) = ty else { return self.owned(ty) };
        let mut text = self.owned(element);
        for size in dimensions.iter().rev() {
            text = format!("[{text}; {size}]");
        }
        text
    }

    pub(super) fn borrowed(&mut self, ty: &Type) -> String {
        let resolved = self.model().unaliased(ty).clone();
        match &resolved {
            Type::Basic(BasicType::Object | BasicType::ValueBase) => {
                self.owned(&resolved).replacen("Option<", "Option<&", 1)
            }
            Type::Basic(BasicType::LongDouble) => self.runtime("LongDouble"),
            Type::Basic(BasicType::Any) => format!("&{}", self.runtime("Any")),
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
                DefinitionKind::Enum(_) | DefinitionKind::Bitmask(_) | DefinitionKind::Bitset(_) => self.owned(ty),
                DefinitionKind::Interface(_) | DefinitionKind::Value(_) | DefinitionKind::ValueBox(_) => {
                    self.owned(ty).replacen("Option<", "Option<&", 1)
                }
                _ => format!("&{}", self.owned(ty)),
            },
            _ => "()".to_owned(),
        }
    }

    pub(super) fn is_ordered(&self, key: &Type) -> bool {
        match self.model().unaliased(key) {
            Type::Basic(basic) => !matches!(
                basic,
                BasicType::Float
                    | BasicType::Double
                    | BasicType::LongDouble
                    | BasicType::Any
                    | BasicType::Object
                    | BasicType::ValueBase
            ),
            Type::String(..) | Type::Fixed(..) => true,
            Type::Named(id) => {
                matches!(
                    self.model().get(*id).kind,
                    DefinitionKind::Enum(_) | DefinitionKind::Bitmask(_) | DefinitionKind::Bitset(_)
                )
            }
            _ => false,
        }
    }

    pub(super) fn is_octet(&self, ty: &Type) -> bool {
        *self.model().unaliased(ty) == Type::Basic(BasicType::Octet)
    }

    pub(super) fn is_string(&self, ty: &Type) -> bool {
        matches!(self.model().unaliased(ty), Type::String(..))
    }

    pub(super) fn is_boxed(&self, ty: &Type) -> bool {
        matches!(ty, Type::Array(..)) && self.array_size(ty) >= BOXED_FROM
    }

    fn array_size(&self, ty: &Type) -> u64 {
        let Type::Array(element, dimensions) = ty else { return self.size(ty) };
        dimensions.iter().fold(self.size(element), |size, count| size.saturating_mul(u64::from(*count)))
    }

    fn size(&self, ty: &Type) -> u64 {
        match self.model().unaliased(ty) {
            Type::Basic(basic) => match basic {
                BasicType::Octet | BasicType::Int8 | BasicType::UInt8 | BasicType::Boolean => 1,
                BasicType::Short | BasicType::UShort => 2,
                BasicType::Long | BasicType::ULong | BasicType::Float | BasicType::Char | BasicType::WChar => 4,
                BasicType::LongDouble | BasicType::Object => 16,
                BasicType::Any => 80,
                _ => 8,
            },
            Type::Fixed(..) => 16,
            array @ Type::Array(..) => Some(self.array_size(array)).filter(|size| *size < BOXED_FROM).unwrap_or(8),
            Type::Named(id) => self.facts.get(id).map_or(24, |facts| facts.size),
            _ => 24,
        }
    }

    /// Returns true if values have no parts on the heap, so they can be copied, and be borrowed
    /// from the arena.
    pub(super) fn is_fixed_size(&self, ty: &Type) -> bool {
        match self.model().unaliased(ty) {
            Type::Basic(basic) => !matches!(basic, BasicType::Any | BasicType::Object | BasicType::ValueBase),
            array @ Type::Array(element, _) => !self.is_boxed(array) && self.is_fixed_size(element),
            Type::Fixed(..) => true,
            Type::Named(id) => self.is_copy(*id),
            _ => false,
        }
    }

    /// Returns true if sequences of the type are encoded in bulk, with each member at a constant
    /// offset.
    pub(super) fn is_plain(&self, ty: &Type) -> bool {
        match self.model().unaliased(ty) {
            Type::Basic(basic) => matches!(
                basic,
                BasicType::Short
                    | BasicType::UShort
                    | BasicType::Long
                    | BasicType::ULong
                    | BasicType::LongLong
                    | BasicType::ULongLong
                    | BasicType::Int8
                    | BasicType::UInt8
                    | BasicType::Octet
                    | BasicType::Float
                    | BasicType::Double
                    | BasicType::Boolean
            ),
            array @ Type::Array(element, _) => !self.is_boxed(array) && self.is_plain(element),
            Type::Named(id) => self.is_plain_definition(*id),
            _ => false,
        }
    }

    pub(super) fn is_plain_definition(&self, id: DefinitionId) -> bool {
        self.facts.get(&id).is_some_and(|facts| facts.plain)
    }

    /// Returns true for a structure of numbers that has the same form in memory and on the wire if
    /// its members are in IDL's order.
    pub(super) fn is_without_padding(&self, id: DefinitionId) -> bool {
        self.is_plain_definition(id) && self.unpadded_size(&Type::Named(id)).is_some()
    }

    /// Returns the size and the alignment of a type that consists of numbers without padding.
    fn unpadded_size(&self, ty: &Type) -> Option<(u64, u64)> {
        match self.model().unaliased(ty) {
            Type::Basic(BasicType::Boolean) => None,
            basic @ Type::Basic(_) if self.is_plain(basic) => Some((self.size(basic), self.size(basic))),
            array @ Type::Array(element, dimensions) if !self.is_boxed(array) => {
                let (size, align) = self.unpadded_size(element)?;
                Some((dimensions.iter().fold(size, |size, count| size.saturating_mul(u64::from(*count))), align))
            }
            Type::Named(id) => {
                let DefinitionKind::Struct(structure) = &self.model().get(*id).kind else { return None };
                let (mut end, mut strictest) = (0_u64, 1);
                for member in self.model().all_members(structure) {
                    let (size, align) = self.unpadded_size(&member.ty)?;
                    if end % align != 0 {
                        return None;
                    }
                    (end, strictest) = (end.saturating_add(size), align.max(strictest));
                }
                (end > 0 && end % strictest == 0).then_some((end, strictest))
            }
            _ => None,
        }
    }

    pub(super) fn is_copy(&self, id: DefinitionId) -> bool {
        self.facts.get(&id).is_some_and(|facts| facts.copy)
    }

    pub(super) fn is_exact(&self, id: DefinitionId) -> bool {
        self.facts.get(&id).is_none_or(|facts| facts.exact)
    }

    pub(super) fn has_default(&self, id: DefinitionId) -> bool {
        match &self.model().get(id).kind {
            DefinitionKind::Value(value) => {
                value.state.iter().all(|(member, _)| self.has_default_type(&member.ty))
                    && self.base_with_state(value).is_none_or(|base| self.has_default(base))
            }
            DefinitionKind::ValueBox(of) => self.has_default_type(of),
            _ => self.facts.get(&id).is_some_and(|facts| facts.default),
        }
    }

    pub(super) fn has_default_type(&self, ty: &Type) -> bool {
        match self.model().unaliased(ty) {
            Type::Array(element, dimensions) => {
                dimensions.iter().all(|length| *length <= LONGEST_COMMON_ARRAY) && self.has_default_type(element)
            }
            Type::Named(id) => match &self.model().get(*id).kind {
                DefinitionKind::Native if self.is_type_code(ty) => true,
                DefinitionKind::Interface(_) | DefinitionKind::Value(_) | DefinitionKind::ValueBox(_) => true,
                DefinitionKind::Native => false,
                _ => self.has_default(*id),
            },
            _ => true,
        }
    }

    pub(super) fn is_standard(&self, id: DefinitionId) -> bool {
        match &self.model().get(id).kind {
            DefinitionKind::Value(value) => {
                value.state.iter().all(|(member, _)| self.is_standard_type(&member.ty))
                    && self.base_with_state(value).is_none_or(|base| self.is_standard(base))
            }
            DefinitionKind::ValueBox(of) => self.is_standard_type(of),
            _ => self.facts.get(&id).is_some_and(|facts| facts.standard),
        }
    }

    pub(super) fn is_standard_type(&self, ty: &Type) -> bool {
        match self.model().unaliased(ty) {
            Type::Basic(basic) => {
                !matches!(basic, BasicType::LongDouble | BasicType::Any | BasicType::Object | BasicType::ValueBase)
            }
            Type::String(..) => true,
            Type::Sequence(element, _) => !self.is_octet(element) && self.is_standard_type(element),
            Type::Array(element, dimensions) => {
                dimensions.iter().all(|length| *length <= LONGEST_COMMON_ARRAY) && self.is_standard_type(element)
            }
            Type::Map(pair, _) => self.is_standard_type(&pair.0) && self.is_standard_type(&pair.1),
            Type::Named(_) if self.is_type_code(ty) => false,
            Type::Named(id) => match &self.model().get(*id).kind {
                DefinitionKind::Interface(_)
                | DefinitionKind::Value(_)
                | DefinitionKind::ValueBox(_)
                | DefinitionKind::Native => false,
                _ => self.is_standard(*id),
            },
            Type::Fixed(..) | Type::FixedConstant | Type::Faulty => false,
        }
    }

    fn is_exact_type(&self, ty: &Type) -> bool {
        match self.model().unaliased(ty) {
            Type::Basic(basic) => {
                !matches!(basic, BasicType::Float | BasicType::Double | BasicType::LongDouble | BasicType::Any)
            }
            Type::Array(element, _) | Type::Sequence(element, _) => self.is_exact_type(element),
            Type::Map(pair, _) => self.is_exact_type(&pair.0) && self.is_exact_type(&pair.1),
            Type::Named(id) => self.is_exact(*id),
            _ => true,
        }
    }

    /// Returns the minimum size of a value on the wire in bytes, without alignment.
    pub(super) fn least_size(&self, ty: &Type) -> u64 {
        match self.model().unaliased(ty) {
            Type::Basic(basic) => match basic {
                BasicType::Short | BasicType::UShort => 2,
                BasicType::Long | BasicType::ULong | BasicType::Float | BasicType::Any => 4,
                BasicType::LongLong | BasicType::ULongLong | BasicType::Double | BasicType::Object => 8,
                BasicType::LongDouble => 16,
                BasicType::ValueBase => 4,
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
                DefinitionKind::Value(_) | DefinitionKind::ValueBox(_) => 4,
                DefinitionKind::Interface(interface) if interface.flavor == InterfaceFlavor::Abstract => 5,
                _ => self.facts.get(id).map_or(8, |facts| facts.least),
            },
            _ => 1,
        }
    }

    /// Finds the [`TypeFacts`] of all types. One pass finds the facts that do not depend on the
    /// elements of sequences, because a type follows the types that it contains directly. Further
    /// passes find the other facts.
    pub(super) fn find_facts(&mut self) {
        let model = self.model();
        for id in model.definition_ids() {
            let (size, least) = match &model.get(id).kind {
                DefinitionKind::Bitmask(mask) => bits(mask.bound),
                DefinitionKind::Bitset(set) => bits(set.bits),
                _ => continue,
            };
            let facts = TypeFacts { size, least, copy: true, exact: true, plain: false, default: true, standard: true };
            self.facts.insert(id, facts);
        }
        for id in &model.completed {
            let members: Vec<Type> = match &model.get(*id).kind {
                DefinitionKind::Struct(structure) | DefinitionKind::Exception(structure) => {
                    model.all_members(structure).into_iter().map(|member| member.ty).collect()
                }
                DefinitionKind::Union(union) => union.arms.iter().map(|arm| arm.member.ty.clone()).collect(),
                _ => Vec::new(),
            };
            let sum = |size: &dyn Fn(&Type) -> u64| members.iter().map(size).fold(0, u64::saturating_add);
            let (size, least) = match &model.get(*id).kind {
                DefinitionKind::Union(union) => {
                    let largest = members.iter().map(|ty| self.size(ty)).max().unwrap_or(0);
                    (largest.saturating_add(8), self.least_size(&union.discriminator))
                }
                DefinitionKind::Enum(enumerators) => (if enumerators.len() <= 256 { 1 } else { 4 }, 4),
                _ => (sum(&|ty| self.size(ty)), sum(&|ty| self.least_size(ty))),
            };
            let copy = members.iter().all(|ty| self.is_fixed_size(ty));
            let plain = match &model.get(*id).kind {
                DefinitionKind::Struct(_) => !members.is_empty() && members.iter().all(|ty| self.is_plain(ty)),
                DefinitionKind::Enum(_) => true,
                _ => false,
            };
            let default = match &model.get(*id).kind {
                DefinitionKind::Struct(_) | DefinitionKind::Exception(_) => {
                    members.iter().all(|ty| self.has_default_type(ty))
                }
                DefinitionKind::Enum(_) => true,
                _ => false,
            };
            self.facts.insert(*id, TypeFacts { size, least, copy, exact: true, plain, default, standard: true });
        }
        let mut changed = true;
        while changed {
            changed = false;
            for id in &model.completed {
                let members: Vec<Type> = match &model.get(*id).kind {
                    DefinitionKind::Struct(structure) | DefinitionKind::Exception(structure) => {
                        model.all_members(structure).into_iter().map(|member| member.ty).collect()
                    }
                    DefinitionKind::Union(union) => union.arms.iter().map(|arm| arm.member.ty.clone()).collect(),
                    _ => continue,
                };
                let exact = members.iter().all(|ty| self.is_exact_type(ty));
                let standard = members.iter().all(|ty| self.is_standard_type(ty));
                if let Some(facts) = self.facts.get_mut(id)
                    && ((facts.exact && !exact) || (facts.standard && !standard))
                {
                    (facts.exact, facts.standard) = (exact, standard);
                    changed = true;
                }
            }
        }
    }

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

fn bits(bits: u32) -> (u64, u64) {
    let octets = match super::extended::number(bits) {
        "u8" => 1,
        "u16" => 2,
        "u32" => 4,
        _ => 8,
    };
    (octets, octets)
}
