//! Keys made of arguments.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

/// What can be a part of a key: what a function is called with, for `#[forebay::cached]`.
///
/// Two values that differ are written differently, also behind one another: texts stand in quotes.
/// For a type of your own write what tells its values apart, or name a `key`.
///
/// ```
/// use forebay::KeyPart;
///
/// struct Tenant { id: u32, name: String }
///
/// impl KeyPart for Tenant {
///     fn write(&self, key: &mut String) {
///         self.id.write(key);
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no part of a key",
    note = "leave the argument out with `skip(..)`, name a `key = \"..\"`, or implement `KeyPart`"
)]
pub trait KeyPart {
    /// Appends it.
    fn write(&self, key: &mut String);
}

/// A key of a name and some parts: `name(part,part)`.
///
/// ```
/// assert_eq!(forebay::key_of("row", &[&7, &"a,b"]), r#"row(7,"a,b")"#);
/// ```
#[must_use]
pub fn key_of(name: &str, parts: &[&dyn KeyPart]) -> String {
    let mut key = String::with_capacity(name.len() + 16);
    key.push_str(name);
    key.push('(');
    all(parts.iter().copied(), &mut key);
    key.push(')');
    key
}

fn all<'a>(parts: impl Iterator<Item = &'a dyn KeyPart>, key: &mut String) {
    for (place, part) in parts.enumerate() {
        if place > 0 {
            key.push(',');
        }
        part.write(key);
    }
}

impl KeyPart for str {
    fn write(&self, key: &mut String) {
        // Writing to a string does not fail.
        let _ = write!(key, "{self:?}");
    }
}

impl KeyPart for String {
    fn write(&self, key: &mut String) {
        self.as_str().write(key);
    }
}

impl KeyPart for char {
    fn write(&self, key: &mut String) {
        let _ = write!(key, "{self:?}");
    }
}

macro_rules! as_they_are {
    ($($part:ty),*) => {$(
        impl KeyPart for $part {
            fn write(&self, key: &mut String) {
                let _ = write!(key, "{self}");
            }
        }
    )*};
}

as_they_are!(bool, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

impl KeyPart for () {
    fn write(&self, key: &mut String) {
        key.push_str("()");
    }
}

macro_rules! as_what_they_hold {
    ($($holder:ty),*) => {$(
        impl<T: KeyPart + ?Sized> KeyPart for $holder {
            fn write(&self, key: &mut String) {
                (**self).write(key);
            }
        }
    )*};
}

as_what_they_hold!(&T, Box<T>, Arc<T>);

impl<T: KeyPart + ToOwned + ?Sized> KeyPart for Cow<'_, T> {
    fn write(&self, key: &mut String) {
        (**self).write(key);
    }
}

impl<T: KeyPart> KeyPart for Option<T> {
    fn write(&self, key: &mut String) {
        match self {
            None => key.push('-'),
            Some(part) => {
                key.push('+');
                part.write(key);
            }
        }
    }
}

impl<T: KeyPart> KeyPart for [T] {
    fn write(&self, key: &mut String) {
        key.push('[');
        all(self.iter().map(|part| part as &dyn KeyPart), key);
        key.push(']');
    }
}

impl<T: KeyPart> KeyPart for Vec<T> {
    fn write(&self, key: &mut String) {
        self.as_slice().write(key);
    }
}

impl<T: KeyPart, const N: usize> KeyPart for [T; N] {
    fn write(&self, key: &mut String) {
        self.as_slice().write(key);
    }
}

impl<A: KeyPart, B: KeyPart> KeyPart for (A, B) {
    fn write(&self, key: &mut String) {
        key.push_str(&key_of("", &[&self.0, &self.1]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_written_differently() {
        let rows: [(&[&dyn KeyPart], &str); 9] = [
            (&[], "f()"),
            (&[&"a", &"b"], "f(\"a\",\"b\")"),
            (&[&"a\",\"b"], "f(\"a\\\",\\\"b\")"),
            (&[&1_u8, &-1_i64, &true], "f(1,-1,true)"),
            (&[&"1"], "f(\"1\")"),
            (&[&None::<u8>, &Some(1_u8), &Some(None::<u8>)], "f(-,+1,+-)"),
            (&[&vec![1, 2], &[3]], "f([1,2],[3])"),
            (&[&(1, "a"), &'x'], "f((1,\"a\"),'x')"),
            (&[&Arc::new(String::from("a")), &Cow::from("b"), &()], "f(\"a\",\"b\",())"),
        ];
        for (parts, expected) in rows {
            assert_eq!(key_of("f", parts), expected);
        }
    }
}
