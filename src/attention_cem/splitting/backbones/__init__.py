"""Own backbones. Each module registers its builder; the registry imports them on first use."""
