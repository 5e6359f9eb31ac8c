//! The loader of graphics drivers.

/// Keeps it from writing to standard error that there is no desktop. It looks for one even where nothing is drawn: libwayland
/// complains once for each look if `XDG_RUNTIME_DIR` is unset, unless the desktop's place is a path.
///
/// To be called while there is one thread only.
pub fn look_for_no_desktop() {
    let is_unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    if cfg!(target_os = "linux") && is_unset("XDG_RUNTIME_DIR") && is_unset("WAYLAND_DISPLAY") {
        // SAFETY: no other thread reads the environment, as there is none.
        unsafe { std::env::set_var("WAYLAND_DISPLAY", "/no-desktop") };
    }
}
