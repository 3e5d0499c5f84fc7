//! Keys that are built from values, such as the arguments of a function.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

/// Type whose values can be a part of a cache key, such as an argument of a
/// `#[forebay::cached]` function.
///
/// Different values must write different text, also in sequence; strings are therefore quoted.
/// Implement it for your own types, or set `key` on the function.
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
    message = "`{Self}` cannot be a part of a key: it does not implement `KeyPart`",
    note = "leave the argument out with `skip(..)`, set `key = \"..\"`, or implement `KeyPart`"
)]
pub trait KeyPart {
    /// Appends the text of this value to the key.
    fn write(&self, key: &mut String);
}

/// Builds a key from a name and parts, in the form `name(part,part)`. Different parts give
/// different keys.
///
/// ```
/// assert_eq!(forebay::key_of("row", &[&7, &"a,b"]), r#"row(7,"a,b")"#);
/// ```
#[must_use]
pub fn key_of(name: &str, parts: &[&dyn KeyPart]) -> String {
    let mut key = String::with_capacity(name.len() + 16);
    key.push_str(name);
    key.push('(');
    write_list(parts.iter().copied(), &mut key);
    key.push(')');
    key
}

fn write_list<'a>(parts: impl Iterator<Item = &'a dyn KeyPart>, key: &mut String) {
    for (index, part) in parts.enumerate() {
        if index > 0 {
            key.push(',');
        }
        part.write(key);
    }
}

impl KeyPart for str {
    fn write(&self, key: &mut String) {
        // Writing to a `String` cannot fail.
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

macro_rules! key_part_by_display {
    ($($part:ty),*) => {$(
        impl KeyPart for $part {
            fn write(&self, key: &mut String) {
                let _ = write!(key, "{self}");
            }
        }
    )*};
}

key_part_by_display!(bool, i8, i16, i32, i64, i128, isize, u8, u16, u32, u64, u128, usize);

impl KeyPart for () {
    fn write(&self, key: &mut String) {
        key.push_str("()");
    }
}

macro_rules! key_part_by_deref {
    ($($holder:ty),*) => {$(
        impl<T: KeyPart + ?Sized> KeyPart for $holder {
            fn write(&self, key: &mut String) {
                (**self).write(key);
            }
        }
    )*};
}

key_part_by_deref!(&T, Box<T>, Arc<T>);

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
        write_list(self.iter().map(|part| part as &dyn KeyPart), key);
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
    fn different_values_write_different_keys() {
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
