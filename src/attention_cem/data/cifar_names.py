"""The classes of CIFAR-10 and CIFAR-100 in their official numbering.

Source: Krizhevsky, *Learning Multiple Layers of Features from Tiny Images*, 2009, and its page
https://www.cs.toronto.edu/~kriz/cifar.html. Both numberings of CIFAR-100 are alphabetical.
"""

CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

CIFAR100_SUPERCLASSES = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}

CIFAR100_COARSE_NAMES = tuple(CIFAR100_SUPERCLASSES)
CIFAR100_NAMES = tuple(sorted(name for names in CIFAR100_SUPERCLASSES.values() for name in names))


def coarse_of_fine() -> tuple[int, ...]:
    """Return the superclass of each of the 100 fine classes.

    Example:
        >>> fine = CIFAR100_NAMES.index("beaver")
        >>> CIFAR100_COARSE_NAMES[coarse_of_fine()[fine]]
        'aquatic_mammals'
    """
    coarse = {fine: number for number, names in enumerate(CIFAR100_SUPERCLASSES.values()) for fine in names}
    return tuple(coarse[name] for name in CIFAR100_NAMES)
