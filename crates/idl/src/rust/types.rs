//! Types of IDL as types of Rust (docs/rust-mapping.md).

use super::Generator;
use super::names::is_reference;
use crate::ast::{Basic, Flavor};
use crate::model::{DefinitionId, Kind, Type};

/// Arrays from this size are boxed (decision 18 of the design).
const BOXED_FROM: u64 = 4096;

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
                if behind == *ty { "()".to_owned() } else { self.owned(&behind) }
            }
            Type::Named(id) => {
                let path = self.path_to(*id);
                match self.model().resolved_definition(ty) {
                    Some(of) if is_reference(self.model(), of) => format!("Option<{path}>"),
                    _ => path,
                }
            }
            Type::Fixed(..) | Type::FixedConstant | Type::Map(..) | Type::Faulty => "()".to_owned(),
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
            Basic::Void | Basic::Any | Basic::ValueBase => "()",
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
            Type::Basic(Basic::Object) => format!("Option<&{}>", self.runtime("ObjectRef")),
            Type::Basic(Basic::LongDouble) => self.runtime("LongDouble"),
            Type::Basic(_) => self.owned(ty),
            Type::String(..) => "&str".to_owned(),
            Type::Sequence(element, _) if self.is_octet(element) => "&[u8]".to_owned(),
            Type::Sequence(element, _) if self.is_string(element) => "&[&str]".to_owned(),
            Type::Sequence(element, _) => format!("&[{}]", self.owned(element)),
            Type::Array(..) if self.is_boxed(&resolved) => format!("&{}", self.array(&resolved)),
            Type::Array(..) => format!("&{}", self.owned(ty)),
            Type::Named(id) => match &self.model().get(*id).kind {
                Kind::Enum(_) => self.owned(ty),
                Kind::Interface(_) => {
                    let owned = self.owned(ty);
                    owned.replacen("Option<", "Option<&", 1)
                }
                _ => format!("&{}", self.owned(ty)),
            },
            _ => "()".to_owned(),
        }
    }

    pub(super) fn is_octet(&self, ty: &Type) -> bool {
        *self.model().resolved(ty) == Type::Basic(Basic::Octet)
    }

    pub(super) fn is_string(&self, ty: &Type) -> bool {
        matches!(self.model().resolved(ty), Type::String(..))
    }

    pub(super) fn is_boxed(&self, ty: &Type) -> bool {
        matches!(ty, Type::Array(..)) && self.array_size(ty, 0) >= BOXED_FROM
    }

    fn array_size(&self, ty: &Type, depth: usize) -> u64 {
        let Type::Array(element, dimensions) = ty else { return self.size(ty, depth) };
        dimensions.iter().fold(self.size(element, depth), |size, count| size.saturating_mul(u64::from(*count)))
    }

    /// Octets that a value takes in memory, to a word.
    fn size(&self, ty: &Type, depth: usize) -> u64 {
        if depth > 64 {
            return 8;
        }
        match self.model().resolved(ty) {
            Type::Basic(basic) => match basic {
                Basic::Octet | Basic::Int8 | Basic::UInt8 | Basic::Boolean => 1,
                Basic::Short | Basic::UShort => 2,
                Basic::Long | Basic::ULong | Basic::Float | Basic::Char | Basic::WChar => 4,
                Basic::LongDouble | Basic::Object => 16,
                _ => 8,
            },
            array @ Type::Array(..) => {
                let size = self.array_size(array, depth + 1);
                if size >= BOXED_FROM { 8 } else { size }
            }
            Type::Named(id) => match &self.model().get(*id).kind {
                Kind::Struct(structure) => {
                    let members = structure.members.iter().map(|member| self.size(&member.ty, depth + 1));
                    members.fold(0_u64, u64::saturating_add)
                }
                Kind::Union(union) => {
                    let arms = union.arms.iter().map(|arm| self.size(&arm.member.ty, depth + 1));
                    8 + arms.max().unwrap_or(0)
                }
                Kind::Enum(enumerators) if enumerators.len() <= 256 => 1,
                Kind::Enum(_) => 4,
                _ => 24,
            },
            _ => 24,
        }
    }

    /// Whether values have no parts on the heap, so that they can be copied and borrowed from the arena.
    pub(super) fn is_fixed_size(&self, ty: &Type) -> bool {
        match self.model().resolved(ty) {
            Type::Basic(basic) => !matches!(basic, Basic::Any | Basic::Object | Basic::ValueBase),
            array @ Type::Array(element, _) => !self.is_boxed(array) && self.is_fixed_size(element),
            Type::Named(id) => self.is_copy(*id),
            _ => false,
        }
    }

    /// Whether a structure, union or enumeration is of fixed size.
    pub(super) fn is_copy(&self, id: DefinitionId) -> bool {
        match &self.model().get(id).kind {
            Kind::Struct(structure) | Kind::Exception(structure) => {
                let base = structure.base.is_none_or(|base| self.is_copy(base));
                base && structure.members.iter().all(|member| self.is_fixed_size(&member.ty))
            }
            Kind::Union(union) => union.arms.iter().all(|arm| self.is_fixed_size(&arm.member.ty)),
            Kind::Enum(_) => true,
            _ => false,
        }
    }

    /// Whether two values can be compared exactly and hashed: nothing of floating point in them.
    pub(super) fn is_exact(&self, ty: &Type, within: &mut Vec<DefinitionId>) -> bool {
        match self.model().resolved(ty) {
            Type::Basic(basic) => !matches!(basic, Basic::Float | Basic::Double | Basic::LongDouble | Basic::Any),
            Type::Array(element, _) | Type::Sequence(element, _) => self.is_exact(&element.clone(), within),
            Type::Named(id) => self.is_exact_definition(*id, within),
            _ => true,
        }
    }

    pub(super) fn is_exact_definition(&self, id: DefinitionId, within: &mut Vec<DefinitionId>) -> bool {
        if within.contains(&id) {
            return true;
        }
        within.push(id);
        let members: Vec<&Type> = match &self.model().get(id).kind {
            Kind::Struct(structure) | Kind::Exception(structure) => {
                structure.members.iter().map(|member| &member.ty).collect()
            }
            Kind::Union(union) => union.arms.iter().map(|arm| &arm.member.ty).collect(),
            _ => Vec::new(),
        };
        members.into_iter().all(|ty| self.is_exact(ty, within))
    }

    /// Octets that a value has on the wire at least, without alignment.
    pub(super) fn least_size(&self, ty: &Type) -> u64 {
        self.least(ty, 0)
    }

    fn least(&self, ty: &Type, depth: usize) -> u64 {
        if depth > 64 {
            return 0;
        }
        match self.model().resolved(ty) {
            Type::Basic(basic) => match basic {
                Basic::Short | Basic::UShort => 2,
                Basic::Long | Basic::ULong | Basic::Float => 4,
                Basic::LongLong | Basic::ULongLong | Basic::Double => 8,
                Basic::LongDouble => 16,
                Basic::Object => 8,
                _ => 1,
            },
            Type::String(..) | Type::Sequence(..) => 4,
            Type::Array(element, dimensions) => {
                let element = self.least(element, depth + 1);
                dimensions.iter().fold(element, |size, count| size.saturating_mul(u64::from(*count)))
            }
            Type::Named(id) => match &self.model().get(*id).kind {
                Kind::Struct(structure) | Kind::Exception(structure) => {
                    let members = structure.members.iter().map(|member| self.least(&member.ty, depth + 1));
                    members.fold(0_u64, u64::saturating_add)
                }
                Kind::Union(union) => self.least(&union.discriminator, depth + 1),
                Kind::Enum(_) => 4,
                Kind::Interface(_) => 8,
                _ => 1,
            },
            _ => 1,
        }
    }

    /// Why a type has no form in Rust yet.
    pub(super) fn unsupported_type(&self, ty: &Type) -> Option<&'static str> {
        match ty {
            Type::Basic(Basic::Any) => Some("`any`"),
            Type::Basic(Basic::ValueBase) => Some("`ValueBase`"),
            Type::Fixed(..) | Type::FixedConstant => Some("`fixed`"),
            Type::Map(..) => Some("a map"),
            Type::Faulty => Some("this type"),
            Type::Basic(_) | Type::String(..) => None,
            Type::Sequence(element, _) | Type::Array(element, _) => self.unsupported_type(element),
            Type::Named(id) => self.unsupported.get(id).copied(),
        }
    }

    /// Why a definition, apart from what it uses, has no form in Rust yet.
    pub(super) fn unsupported_kind(kind: &Kind) -> Option<&'static str> {
        match kind {
            Kind::Value(_) => Some("a value type"),
            Kind::ValueBox(_) => Some("a value box"),
            Kind::Native => Some("a native type"),
            Kind::Bitmask(_) => Some("a bit mask"),
            Kind::Bitset => Some("a bit set"),
            Kind::Struct(structure) if structure.base.is_some() => Some("inheritance of structures"),
            Kind::Interface(interface) => match interface.flavor {
                Flavor::Local => Some("a local interface"),
                Flavor::Abstract => Some("an abstract interface"),
                Flavor::Remote => None,
            },
            _ => None,
        }
    }
}
