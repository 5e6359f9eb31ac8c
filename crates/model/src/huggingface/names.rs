//! Tables of values and their names in files, and lists of names for errors.

/// The value of a name in a table.
pub(super) fn of_name<T: Copy>(table: &[(T, &str)], name: &str) -> Option<T> {
    table.iter().find_map(|(value, known)| (*known == name).then_some(*value))
}

/// The first name of a value in a table.
pub(super) fn name_of<T: Copy + PartialEq>(table: &[(T, &'static str)], value: T) -> &'static str {
    table.iter().find_map(|(known, name)| (*known == value).then_some(*name)).expect("every value has a name")
}

/// `"a", "b" or "c"`, or `"a"` alone
pub(super) fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
    let (last, rest) = names.split_last().expect("no table is empty");
    if rest.is_empty() {
        return last.clone();
    }
    format!("{} or {last}", rest.join(", "))
}
