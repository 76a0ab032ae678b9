//! What few messages have.

/// Something behind a pointer that few ever make. To find that it is not there, and to drop it then, is one comparison in the caller; all
/// else is out of the way.
#[derive(Debug)]
pub(in crate::cdr) struct Rarely<T>(Option<Box<T>>);

impl<T> Rarely<T> {
    pub(in crate::cdr) const NONE: Self = Rarely(None);

    pub(in crate::cdr) fn new(value: T) -> Self {
        Rarely(Some(Box::new(value)))
    }

    #[inline]
    pub(in crate::cdr) fn get(&self) -> Option<&T> {
        self.0.as_deref()
    }

    #[inline]
    pub(in crate::cdr) fn get_mut(&mut self) -> Option<&mut T> {
        self.0.as_deref_mut()
    }
}

impl<T: Default> Rarely<T> {
    pub(in crate::cdr) fn get_or_make(&mut self) -> &mut T {
        self.0.get_or_insert_default()
    }
}

impl<T> Default for Rarely<T> {
    fn default() -> Self {
        Rarely::NONE
    }
}

impl<T> Drop for Rarely<T> {
    #[inline(always)]
    fn drop(&mut self) {
        #[cold]
        fn end<T>(value: Box<T>) {
            drop(value);
        }
        if let Some(value) = self.0.take() {
            end(value);
        }
    }
}
