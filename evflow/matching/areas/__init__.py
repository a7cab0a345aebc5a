"""Areas on the plane and on the globe: circles, boxes and polygons, which places they hold, which overlap."""
