//! References with an erased type. The type is checked when the reference is read.

use std::any::{Any, TypeId};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::Arc;

type Words = [MaybeUninit<usize>; 2];

/// A `&'s T` whose type `T` is erased.
///
/// # Examples
/// ```
/// use corelane_sys::erased::ErasedRef;
///
/// let erased = ErasedRef::new::<str>("text");
/// assert_eq!(erased.get::<str>(), Some("text"));
/// assert_eq!(erased.get::<[u8]>(), None);
/// ```
#[derive(Clone, Copy)]
pub struct ErasedRef<'s> {
    of: TypeId,
    words: Words,
    /// Makes the type neither `Send` nor `Sync`, because the erased `T` may not be `Sync`.
    borrow: PhantomData<(&'s (), *const ())>,
}

impl<'s> ErasedRef<'s> {
    /// Erases the type of a reference.
    #[inline]
    #[must_use]
    pub fn new<T: ?Sized + 'static>(value: &'s T) -> Self {
        const { assert!(size_of::<&T>() <= size_of::<Words>()) };
        let mut words: Words = [MaybeUninit::uninit(); 2];
        // SAFETY: a reference fits, as asserted, and has a word's alignment.
        unsafe { words.as_mut_ptr().cast::<&'s T>().write(value) };
        ErasedRef { of: TypeId::of::<T>(), words, borrow: PhantomData }
    }

    /// Returns the reference; `None` if its type is not `&T`.
    #[inline]
    #[must_use]
    pub fn get<T: ?Sized + 'static>(&self) -> Option<&'s T> {
        if self.of != TypeId::of::<T>() {
            return None;
        }
        // SAFETY: `new` wrote a `&'s T` of the same type: `TypeId` distinguishes types, and `T` has
        // no lifetime of its own.
        Some(unsafe { self.words.as_ptr().cast::<&'s T>().read() })
    }
}

/// An `Arc<T>` whose type `T` is erased. Reading the value calls no function through a pointer.
///
/// # Examples
/// ```
/// use corelane_sys::erased::ErasedArc;
/// use std::sync::Arc;
///
/// let erased = ErasedArc::new::<str>(Arc::from("text"));
/// assert_eq!(erased.get::<str>(), Some("text"));
/// assert_eq!(erased.get::<[u8]>(), None);
/// ```
pub struct ErasedArc {
    /// A reference into the value that `_owner` keeps alive.
    value: ErasedRef<'static>,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: the value is `Send` and `Sync`, as `new` demands, and `value` only refers to it.
unsafe impl Send for ErasedArc {}
// SAFETY: the value is `Send` and `Sync`, as `new` demands, and `value` only refers to it.
unsafe impl Sync for ErasedArc {}

impl ErasedArc {
    /// Erases the type of the value that the `Arc` owns.
    #[must_use]
    pub fn new<T: ?Sized + Send + Sync + 'static>(value: Arc<T>) -> Self {
        // SAFETY: the value stays in place until the last `Arc` is dropped, and `_owner` keeps one
        // as long as `self` lives. `get` returns references that live no longer than `self`.
        let borrowed: &'static T = unsafe { &*Arc::as_ptr(&value) };
        ErasedArc { value: ErasedRef::new(borrowed), _owner: Box::new(value) }
    }

    /// Returns the value; `None` if it is not a `T`.
    #[inline]
    #[must_use]
    pub fn get<T: ?Sized + 'static>(&self) -> Option<&T> {
        self.value.get()
    }
}

impl fmt::Debug for ErasedArc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErasedArc").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Display;
    use std::sync::Arc;

    use super::{ErasedArc, ErasedRef};

    #[test]
    fn erased_arc_keeps_the_value_alive() {
        let value: Arc<dyn Display + Send + Sync> = Arc::new(String::from("shared"));
        let weak = Arc::downgrade(&value);
        let erased = ErasedArc::new(value);
        assert_eq!(erased.get::<dyn Display + Send + Sync>().map(ToString::to_string), Some("shared".to_owned()));
        assert!(erased.get::<String>().is_none());
        let other = std::thread::spawn(move || {
            let shown = erased.get::<dyn Display + Send + Sync>().map(ToString::to_string);
            (erased, shown)
        });
        let (erased, shown) = other.join().unwrap();
        assert_eq!(shown.as_deref(), Some("shared"));
        assert!(weak.upgrade().is_some());
        drop(erased);
        assert!(weak.upgrade().is_none());
    }

    #[test]
    fn only_the_stored_type_is_returned() {
        let number = 7u64;
        let erased = ErasedRef::new(&number);
        assert_eq!(erased.get::<u64>(), Some(&7));
        assert_eq!(erased.get::<i64>(), None);
        let shown: &(dyn Display + 'static) = &number;
        let erased = ErasedRef::new(shown);
        assert_eq!(erased.get::<dyn Display>().map(ToString::to_string), Some("7".to_owned()));
        assert!(erased.get::<u64>().is_none());
        let list = [1u8, 2, 3];
        assert_eq!(ErasedRef::new(&list[1..]).get::<[u8]>(), Some(&[2u8, 3][..]));
    }
}
