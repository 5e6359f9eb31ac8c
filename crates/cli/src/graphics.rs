//! The loader of graphics drivers.

/// Stops the graphics loader from complaining on standard error about a missing desktop. It looks for one even
/// if nothing is drawn: libwayland complains each time if `XDG_RUNTIME_DIR` is unset, unless the display name
/// is a path.
///
/// Must be called while the process has a single thread.
pub fn look_for_no_desktop() {
    let is_unset = |name| std::env::var_os(name).is_none_or(|value| value.is_empty());
    if cfg!(target_os = "linux") && is_unset("XDG_RUNTIME_DIR") && is_unset("WAYLAND_DISPLAY") {
        // SAFETY: no other thread reads the environment, as there is none.
        unsafe { std::env::set_var("WAYLAND_DISPLAY", "/no-desktop") };
    }
}
